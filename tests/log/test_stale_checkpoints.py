"""The checkpoints of a data directory after logs were deleted or truncated: what they say of records that are gone is
never taken for what is written next."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.directories import checkpoints, data_directory
from barnabas.log.directories.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_CHECKPOINT,
    read_offset_checkpoint,
)
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import UnifiedLog
from barnabas.types import TopicPartition
from faulty_filesystem import FaultyFileSystem
from log.log_files import refuse, synced_paths
from log.manager_rig import A0, A1, B0, CONFIG, die, start

CHECKPOINTS = (RECOVERY_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)


def write_checkpoints(manager: LogManager) -> None:
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_start_offsets()
    manager.checkpoint_high_watermarks()


def found(log: UnifiedLog | None) -> tuple[int, int, int]:
    assert log is not None
    return log.log_start_offset, log.high_watermark, log.log_end_offset


@pytest.mark.parametrize("meanwhile", ["nothing", "a restart", "a restart without the topic"])
@pytest.mark.parametrize("count", [300, 700])
def test_a_topic_that_is_made_anew_has_nothing_of_the_old_one(rig, meanwhile: str, count: int) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 600)
    log.delete_records(500)
    log.flush()
    write_checkpoints(manager)
    if meanwhile != "a restart without the topic":
        manager.delete(A0)
    if meanwhile != "nothing":
        die(manager)
        manager = start(rig.manager(), belongs=lambda *_: False)
    new = manager.create(A0, None, CONFIG)
    rig.append(new, count)
    die(manager)
    start_offset, high_watermark, end = found(start(rig.manager()).get(A0))
    assert (start_offset, end) == (0, count)
    assert high_watermark == 0, "that of the old topic says nothing"


def test_a_log_that_begins_lower_keeps_its_first_records(rig) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 600)
    log.delete_records(500)
    write_checkpoints(manager)
    log.truncate_fully_and_start_at(300)
    rig.append(log, 400)
    die(manager)
    assert found(start(rig.manager()).get(A0)) == (300, 300, 700)


def test_checkpoints_that_are_written_while_a_log_is_emptied_do_not_bring_its_offsets_back(rig) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 600)
    log.delete_records(500)
    log.flush()
    log.cleaned_offset = 600
    lower, lowered = log.lower_checkpoints, []

    def lower_and_write(end: int) -> None:
        lower(end)
        lowered.append(end)
        if len(lowered) == 1:  # a thread comes before the segments go
            write_checkpoints(manager)
            manager.checkpoint_cleaned_offsets()

    log.lower_checkpoints = lower_and_write
    log.truncate_fully_and_start_at(300)
    for name in CHECKPOINTS:
        assert read_offset_checkpoint(f"{manager.directories[0].path}/{name}") == {A0: 300}, name


def test_records_after_a_truncation_are_verified(rig) -> None:
    """Those before were on the disk, these are not."""
    manager = start(rig.manager())
    log = manager.create(A0, None, LogConfig(segment_bytes=500))
    for _ in range(20):
        rig.append(log)
    log.flush()
    manager.checkpoint_recovery_points()
    log.truncate_to(5)
    for _ in range(15):
        rig.append(log)
    sealed = log.segments[-3]
    assert sealed.base_offset > 5
    damaged = Path(sealed.path(".log"))
    die(manager)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    assert start(rig.manager(boot_id="after the power loss")).get(A0).log_end_offset == sealed.base_offset


def test_a_move_begins_without_what_the_new_directory_knew(tmp_path: Path) -> None:
    manager = start(LogManager([tmp_path / "one", tmp_path / "two"], SYSTEM_CLOCK))
    one, two = manager.directories
    one.write_checkpoint(LOG_START_CHECKPOINT, lambda: {A0: 500}, sync=True)
    manager.prefer(A0.topic, A0.partition, two)
    manager.create(A0, None, CONFIG)
    manager.futures.create(A0, one, None)
    assert read_offset_checkpoint(str(tmp_path / "one" / LOG_START_CHECKPOINT))[A0] == 0
    manager.shutdown()


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("step", ["offsets", "before", "write"])
def test_a_checkpoint_that_is_being_written_does_not_bring_old_offsets_back(
    rig, monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    manager = start(rig.manager())
    directory = manager.directories[0]
    deleter = Thread(target=directory.lower_checkpoints, args=(A0, 0))
    real = checkpoints.write_offset_checkpoint

    def meanwhile(at: str) -> None:
        if at == step:
            deleter.start()
            deleter.join(0.05)  # it would be over by then if it did not wait

    def offsets() -> dict:
        meanwhile("offsets")
        return {A0: 500}

    def write(*args: object, **options: object) -> None:
        if deleter.ident is None:
            meanwhile("write")
        real(*args, **options)

    monkeypatch.setattr(data_directory, "write_offset_checkpoint", write)
    directory.write_checkpoint(name, offsets, sync=False, before=lambda: meanwhile("before"))
    deleter.join()
    assert read_offset_checkpoint(f"{directory.path}/{name}") == {A0: 0}


class TestWaits:
    """The event loop waits for the disk only where an offset is above, and for one sync of all."""

    def written(self, rig, manager: LogManager, *partitions: TopicPartition) -> None:
        """Logs with records, and with offsets in all checkpoints."""
        for topic_partition in partitions:
            log = manager.create(topic_partition, None, CONFIG)
            rig.append(log, 10)
            log.delete_records(5)
            log.flush()
            log.cleaned_offset = 10
        write_checkpoints(manager)
        manager.checkpoint_cleaned_offsets()

    def test_a_topic_with_many_partitions_is_made_anew_with_one_sync(
        self, rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = start(rig.manager())
        partitions = [TopicPartition("many", index) for index in range(20)]
        self.written(rig, manager, B0, *partitions)
        for topic_partition in partitions:
            manager.delete(topic_partition)
        synced = synced_paths(monkeypatch)
        for topic_partition in partitions:
            manager.create(topic_partition, None, CONFIG)
        assert len(synced) == 2 * len(CHECKPOINTS), "each file and its name"
        for name in CHECKPOINTS:
            found = read_offset_checkpoint(f"{manager.directories[0].path}/{name}")
            assert found.pop(B0) > 0, name
            assert set(found.values()) <= {0}, name

    def test_the_log_of_before_a_move_keeps_its_offsets(self, tmp_path: Path, rig) -> None:
        manager = start(LogManager([tmp_path / "one", tmp_path / "two"], SYSTEM_CLOCK))
        one, two = manager.directories
        manager.prefer(A0.topic, A0.partition, one)
        manager.prefer(A1.topic, A1.partition, one)
        self.written(rig, manager, A0, A1)
        future = manager.futures.create(A0, two, None)
        copy = manager.open_future(future, CONFIG)
        copy.truncate_fully_and_start_at(manager.logs[A0].log_end_offset)
        manager.move_into_place(future)
        manager.delete(A1)
        manager.prefer(A1.topic, A1.partition, one)
        manager.create(A1, None, CONFIG)
        assert read_offset_checkpoint(f"{one.path}/{LOG_START_CHECKPOINT}") == {A0: 5, A1: 0}
        manager.drop_replaced(A0)
        manager.shutdown()

    @pytest.mark.parametrize("step", ["before", "write"])
    @pytest.mark.parametrize("work", ["create", "truncate_to", "truncate_fully_and_start_at"])
    def test_nobody_waits_for_a_checkpoint_without_higher_offsets(
        self, rig, monkeypatch: pytest.MonkeyPatch, step: str, work: str
    ) -> None:
        manager = start(rig.manager())
        log = manager.create(A0, None, CONFIG)
        rig.append(log)
        manager.checkpoint_cleaned_offsets()
        log.cleaned_offset = 1
        log.append_as_leader(rig.batch(), 0)
        works: dict[str, Callable[[], object]] = {
            "create": lambda: manager.create(B0, None, CONFIG),
            "truncate_to": lambda: log.truncate_to(1),
            "truncate_fully_and_start_at": lambda: log.truncate_fully_and_start_at(7),
        }
        worker = Thread(target=works[work], daemon=True)
        waited = []
        real = checkpoints.write_offset_checkpoint

        def meanwhile(at: str) -> None:
            if at == step:
                worker.start()
                worker.join(10)
                waited.append(worker.is_alive())

        def write(*args: object, **options: object) -> None:
            meanwhile("write")
            real(*args, **options)

        monkeypatch.setattr(data_directory, "write_offset_checkpoint", write)
        manager.checkpoint_cleaned_offsets(before=lambda _: meanwhile("before"))
        assert waited == [False]


def test_a_truncation_below_the_high_watermark_lowers_what_is_written_meanwhile(rig) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    for _ in range(10):
        rig.append(log)
    log.flush()
    log.cleaned_offset = 10
    lower, lowered = log.lower_checkpoints, []

    def lower_and_write(end: int) -> None:
        lower(end)
        lowered.append(end)
        if len(lowered) == 1:  # a thread comes before the records go
            write_checkpoints(manager)
            manager.checkpoint_cleaned_offsets()

    log.lower_checkpoints = lower_and_write
    log.truncate_to(4)
    for name in (RECOVERY_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT):
        assert read_offset_checkpoint(f"{manager.directories[0].path}/{name}") == {A0: 4}, name


@pytest.mark.parametrize("work", ["truncate_to", "truncate_fully_and_start_at"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_truncation_that_a_full_disk_refuses_is_made_when_there_is_room(
    rig, monkeypatch: pytest.MonkeyPatch, work: str, code: int
) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    for _ in range(10):
        rig.append(log)
    log.flush()
    write_checkpoints(manager)
    with monkeypatch.context() as full:
        full.setattr(data_directory, "write_offset_checkpoint", refuse(code))
        for _ in range(2):
            with pytest.raises(KafkaStorageError, match=os.strerror(code)):
                getattr(log, work)(5)
        assert (log.log_end_offset, log.offline_reason) == (10, None)
    getattr(log, work)(5)
    assert rig.append(log).first_offset == 5
    die(manager)
    assert start(rig.manager()).get(A0).log_end_offset == 6


def test_a_write_that_failed_may_be_on_the_disk(rig, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = start(rig.manager()).directories[0]
    with monkeypatch.context() as failing:
        failing.setattr(checkpoints, "fsync_directory", refuse(errno.EIO))
        for offsets in ({A0: 500}, {A0: 300}):
            with pytest.raises(OSError, match="Input/output error"):
                directory.write_checkpoint(LOG_START_CHECKPOINT, offsets.copy, sync=True)
    path = f"{directory.path}/{LOG_START_CHECKPOINT}"
    directory.lower_checkpoints(A0, 400)
    assert read_offset_checkpoint(path) == {A0: 400}
    directory.write_checkpoint(LOG_START_CHECKPOINT, lambda: {A0: 600}, sync=True)
    assert read_offset_checkpoint(path) == {A0: 600}


@pytest.mark.parametrize("later", [{B0: 7}, {A0: 200, B0: 7}])
def test_offsets_that_were_lowered_without_a_sync_do_not_come_back_after_a_power_loss(rig, later: dict) -> None:
    files = FaultyFileSystem(str(rig.root))
    with files.watch():
        directory = start(rig.manager()).directories[0]
        directory.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, lambda: {A0: 500, B0: 7}, sync=True)
        files.sync_names(str(rig.root))
        directory.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, lambda: later, sync=False)
        directory.lower_checkpoints(A0, 200)  # there is nothing to lower
        files.lose_power(names_last=False)
    files.close()
    assert read_offset_checkpoint(f"{directory.path}/{HIGH_WATERMARK_CHECKPOINT}") == later
