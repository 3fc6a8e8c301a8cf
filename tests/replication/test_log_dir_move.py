"""The copy of a log follows what happens to the log, and takes its place with all that the log knew."""

import contextlib
import dataclasses
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.log.directories.checkpoints import RUNNING
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.replication import log_dir_move
from barnabas.replication.log_dir_move import LogDirMove
from barnabas.replication.partition import Partition
from barnabas.types import BrokerId, Offset, ProducerId, TopicPartition
from hand_clock import HandClock
from log.log_files import synced_paths
from replication.rig import lead_alone

TP = TopicPartition("flights", 0)
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=0)


class Rig:
    """A leader whose log is in the first of three directories."""

    def __init__(self, path: Path) -> None:
        self.manager = LogManager([path / "one", path / "two", path / "three"], HandClock())
        self.manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
        self.manager.prefer(TP.topic, TP.partition, self.manager.directories[0])
        topic_id = uuid.UUID(int=1)
        self.partition = Partition(TP, topic_id, self.manager.create(TP, topic_id, CONFIG))
        self.epoch = 0
        self.lead()

    def lead(self) -> None:
        self.epoch += 1
        lead_alone(self.partition, self.epoch)

    @property
    def log(self) -> UnifiedLog:
        return self.partition.log

    def append(self, count: int = 1, *, size: int = 100, producer_id: int = -1, sequence: int = -1) -> None:
        for number in range(count):
            data = build_batch(
                [Record(0, 1_000, None, b"%d" % self.epoch + b"x" * size)],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence + number if producer_id >= 0 else -1,
            )
            header = read_header(data)
            self.partition.append_as_leader(ValidatedBatch(header, data, header.max_timestamp, 0, 1), 1)

    def begin(self) -> LogDirMove:
        future = self.manager.futures.create(TP, self.manager.directories[1], self.partition.topic_id)
        return LogDirMove(self.partition, future, self.manager)

    def move(self, during: Callable[[int], None] = lambda _: None) -> None:
        move = self.begin()
        for number, work in enumerate(move.steps()):
            work()
            during(number)
        assert move.is_in_place
        assert self.manager.directory_of(TP) is self.manager.directories[1]
        assert self.manager.logs[TP] is self.log

    def batches(self) -> list[bytes]:
        return [segment.read(at, header.size_bytes) for segment, at, header in self.log.headers_from(Offset(0))]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name, value in (("SLICE_MAX", 1_200), ("SLICE_MIN", 1_200), ("LAST_BYTES", 300)):
        monkeypatch.setattr(log_dir_move, name, value)
    rig = Rig(tmp_path)
    yield rig
    rig.manager.shutdown()


def test_the_batches_are_the_same_bytes(rig: Rig) -> None:
    rig.append(50)
    before, offsets, epochs = rig.batches(), dataclasses.replace(rig.log.offsets), rig.log.leader_epochs.entries
    rig.move()
    assert rig.batches() == before
    assert rig.log.offsets == offsets
    assert rig.log.leader_epochs.entries == epochs


def test_the_leader_epochs_are_on_the_disk_before_the_old_log_goes(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.append(50)
    synced = synced_paths(monkeypatch)
    rig.move()
    assert str(tmp_path / "one") in synced[synced.index(rig.log.leader_epochs.path) :]


def test_a_truncated_log_takes_its_copy_along(rig: Rig) -> None:
    rig.append(20)

    def truncate(number: int) -> None:
        if number == 3:
            rig.log.truncate_to(Offset(4))
            rig.lead()
            rig.append(30)

    rig.move(truncate)
    assert rig.log.log_end_offset == 34
    assert [b"2xxx" in batch for batch in rig.batches()] == [False] * 4 + [True] * 30
    assert rig.log.leader_epochs.entries == [(1, 0), (2, 4)]


def test_a_log_that_begins_anew_far_ahead(rig: Rig) -> None:
    rig.append(20)

    def empty(number: int) -> None:
        if number == 3:
            rig.log.truncate_fully_and_start_at(Offset(1_000))
            rig.append(20)

    rig.move(empty)
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (1_000, 1_020)
    assert len(rig.batches()) == 20


def test_what_retention_removes_meanwhile_is_not_needed(rig: Rig) -> None:
    rig.append(60)

    def delete(number: int) -> None:
        if number == 2:
            rig.log.delete_records(Offset(50))
            assert rig.log.delete_old_segments(0)

    rig.move(delete)
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (50, 60)
    part = rig.log.read(Offset(50), 10_000, upper_bound=Offset(60), min_one_message=True).file_slice
    assert part is not None
    assert read_header(part.read()).base_offset == 50


@pytest.mark.parametrize("when", range(9))
@pytest.mark.parametrize("removed", [True, False])
def test_a_log_that_is_emptied_meanwhile_moves(rig: Rig, when: int, removed: bool) -> None:
    rig.append(60)

    def delete(number: int) -> None:
        if number == when:
            rig.log.delete_records(rig.log.log_end_offset)
            if removed:
                rig.log.delete_old_segments(0)

    rig.move(delete)
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (60, 60)
    rig.append()
    assert rig.log.log_end_offset == 61


def test_a_log_that_begins_within_a_batch(rig: Rig) -> None:
    data = build_batch([Record(number, 1_000, None, b"x") for number in range(10)])
    header = read_header(data)
    rig.partition.append_as_leader(ValidatedBatch(header, data, header.max_timestamp, 0, 10), 1)
    rig.append(10)
    rig.log.delete_records(Offset(7))
    rig.move()
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (7, 20)
    assert len(rig.batches()) == 11


def test_producers_whose_batches_are_gone_stay_known(rig: Rig) -> None:
    rig.append(1, producer_id=7, sequence=0)
    rig.append(40)
    rig.log.delete_records(Offset(40))
    rig.log.delete_old_segments(0)
    rig.move()
    assert rig.log.producers.producers[ProducerId(7)].last_sequence == 0
    rig.append(1, producer_id=7, sequence=0)
    assert rig.log.log_end_offset == 41, "the batch was stored before"
    manager = rig.manager
    manager.abandon()
    manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
    assert manager.logs[TP].producers.producers[ProducerId(7)].last_sequence == 0, "after a crash, too"


def test_a_verification_that_has_begun_goes_on(rig: Rig) -> None:
    source, guards = rig.log, rig.log.producers.guards
    rig.move()
    assert rig.log is not source
    assert rig.log.producers.guards is guards


def test_a_batch_that_is_larger_than_a_segment_by_now(rig: Rig) -> None:
    rig.append(1, size=1_500)
    rig.partition.set_config(dataclasses.replace(CONFIG, segment_bytes=1_000))
    rig.append(5)
    before = rig.batches()
    rig.move()
    assert rig.batches() == before
    assert rig.log.config.segment_bytes == 1_000


def test_a_log_that_failed_does_not_move(rig: Rig) -> None:
    rig.append(20)

    def fail(number: int) -> None:
        if number == 2:
            rig.log.take_offline("an fsync failed")

    with pytest.raises(KafkaStorageError, match="takes no more writes"):
        rig.move(fail)
    assert rig.manager.directory_of(TP) is rig.manager.directories[0]
    rig.log.offline_reason = None


def test_the_old_directory_stays_until_all_is_on_the_disk(rig: Rig) -> None:
    rig.append(20)
    old, new = Path(rig.log.directory), rig.manager.directories[1].path
    seen = []

    def note(_: int) -> None:
        is_moved = rig.log.directory.startswith(new)
        if not is_moved:
            rig.append()
        is_kept = bool(list(old.parent.glob("flights-0*-stray"))) if is_moved else old.exists()
        if is_moved and is_kept:
            assert (Path(rig.log.directory) / "barnabas-moved-from").exists()
        seen.append((is_moved, is_kept, rig.log.recovery_point == rig.log.log_end_offset))

    rig.move(note)
    assert (True, True, False) in seen, "the last batches are synced after the rename"
    assert seen[-1] == (True, False, True)
    assert not list(Path(rig.log.directory).glob("barnabas*"))


def broken(*_: object, **__: object) -> None:
    raise OSError(5, "Input/output error", "there")


def failed_clean_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> LogDirMove:
    """Moves the replica, but the log of before cannot be removed."""
    move = rig.begin()
    with monkeypatch.context() as patched, contextlib.suppress(OSError):
        patched.setattr(log_dir_move, "fsync_file", broken)
        for work in move.steps():
            work()
    assert move.is_in_place
    assert list(Path(rig.manager.directories[0].path).glob("flights-0*-stray"))
    return move


def test_a_full_disk_without_the_replica_holds_up_no_clean_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(20)
    monkeypatch.setattr(rig.manager.directories[2], "write_checkpoint", broken)
    before = rig.log.directory
    rig.move()
    assert not Path(before).exists()
    assert not list(Path(before).parent.glob("*-stray"))
    monkeypatch.undo()


def test_a_failed_clean_up_can_be_tried_again(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(20)
    move = failed_clean_up(rig, monkeypatch)
    for work in move.clean_up():
        work()
    assert not list((tmp_path / "one").glob("*-stray"))
    assert not list((tmp_path / "two").glob("flights-0/barnabas*"))
    assert not list(move.clean_up())[3:]


def test_a_replaced_log_never_counts_again(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.append(20)
    failed_clean_up(rig, monkeypatch)
    rig.append(20)
    manager = rig.manager
    manager.abandon()
    lost = tmp_path / "two" / "flights-0"
    lost.rename(tmp_path / "kept")
    manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
    assert TP not in manager.logs, "the log that has all is lost: this one must not lead"
    manager.prefer(TP.topic, TP.partition, manager.directories[0])
    manager.create(TP, uuid.UUID(int=1), CONFIG)
    manager.abandon()
    (tmp_path / "kept").rename(lost)
    with pytest.raises(UsageError, match="hold the same partition; move one away"):
        manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
    shutil.rmtree(tmp_path / "one" / "flights-0")
    manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
    assert manager.logs[TP].log_end_offset == 40
    assert not list((tmp_path / "one").glob("*-stray"))


@pytest.mark.parametrize("has_more", ["one", "two"])
def test_after_a_loss_of_power_a_replaced_log_may_have_more(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_more: str
) -> None:
    rig.append(20)
    failed_clean_up(rig, monkeypatch)
    if has_more == "one":
        rig.log.truncate_to(Offset(5))  # what was not on the disk
    manager = rig.manager
    manager.abandon()
    for name in ("one", "two"):
        (tmp_path / name / RUNNING).unlink()
    manager.startup(lambda _: CONFIG, node_id=BrokerId(1))
    assert manager.logs[TP].directory == str(tmp_path / has_more / "flights-0")
    assert manager.logs[TP].log_end_offset == 20
    assert not list(tmp_path.glob("*/*-stray"))
