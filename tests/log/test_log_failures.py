"""Full and failing disks: nothing half-written stays, reads go on, and writes come back by themselves."""

import errno
import os
from functools import partial

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.directories.disk import Disk
from barnabas.log.indexes.transaction_index import TransactionIndex
from barnabas.log.log_loader import Verification
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from log.log_files import contents, no_descriptors, refuse


def test_a_full_disk_fails_the_append_and_nothing_else(rig) -> None:
    log = rig.log()
    rig.append(log, 3)
    before = contents(log)
    rig.disk.room = 40
    with pytest.raises(KafkaStorageError, match=r"flights-3.*No space left"):
        rig.append(log, 3)
    assert log.log_end_offset == 3
    assert contents(log) == before
    assert os.path.getsize(log.active_segment.path(".log")) == len(before)
    assert log.read(0, 1000, upper_bound=3, min_one_message=True).size == len(before)
    rig.disk.room = None
    assert rig.append(log, 3).first_offset == 3
    assert rig.reopen(log, Verification.FULL).log_end_offset == 6


def test_a_disk_that_was_full_takes_records_when_it_has_more_room_than_others_lend(rig, monkeypatch) -> None:
    """What is free on it for a moment may be meant for the registry of another broker."""
    free = 0
    monkeypatch.setattr(Disk, "free_bytes", lambda *_: free)
    log = rig.log()
    rig.append(log, 3)
    rig.disk.room = 0
    with pytest.raises(KafkaStorageError):
        rig.append(log, 3)
    rig.disk.room = None
    for free in (0, (1 << 20) - 1):  # noqa: B007
        with pytest.raises(KafkaStorageError, match="No space left"):
            rig.append(log, 3)
    free = 1 << 20
    assert rig.append(log, 3).first_offset == 3
    free = 0
    assert rig.append(log, 3).first_offset == 6


def test_a_failed_append_leaves_the_producer_free_to_retry(rig) -> None:
    log = rig.log()
    rig.disk.room = 0
    with pytest.raises(KafkaStorageError):
        rig.send(log, 7, 0)
    rig.disk.room = None
    assert not rig.send(log, 7, 0).duplicate
    assert rig.send(log, 7, 0).duplicate


def test_an_append_waits_until_the_torn_rest_is_gone(rig) -> None:
    log = rig.log()
    rig.append(log)
    rig.disk.room = 40
    rig.disk.fails = {"ftruncate"}
    with pytest.raises(KafkaStorageError):
        rig.append(log)
    rig.disk.room = None
    with pytest.raises(KafkaStorageError, match="does not remove"):
        rig.append(log)
    rig.disk.fails = set()
    assert rig.append(log).first_offset == 1
    assert rig.reopen(log, Verification.FULL).log_end_offset == 2


def test_a_roll_that_fails_can_be_tried_again(rig) -> None:
    log = rig.log(segment_bytes=200, index_interval_bytes=0)
    rig.append(log, size=100)
    rig.disk.fails = {"pwrite"}
    with pytest.raises(KafkaStorageError):
        rig.append(log, size=100)
    assert len(log.segments) == 1
    rig.disk.fails = set()
    assert rig.append(log, size=100).first_offset == 1
    assert len(log.segments) == 2


def test_a_read_that_fails_is_a_storage_error(rig) -> None:
    log = rig.log()
    for _ in range(300):
        rig.append(log)
    rig.disk.fails = {"pread"}
    with pytest.raises(KafkaStorageError):
        log.read(0, 1000, upper_bound=300, min_one_message=True)


class TestCheckpointWithoutRoom:
    """The epochs' file is replaced as a whole, which a full disk refuses too."""

    @pytest.fixture
    def full(self, monkeypatch):
        def refuse(path: str, *_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        def fill() -> None:
            monkeypatch.setattr("barnabas.log.leader_epoch_cache.write_epoch_checkpoint", refuse)

        return fill

    def test_the_first_batch_of_an_epoch_is_refused(self, rig, full, monkeypatch) -> None:
        log = rig.log()
        rig.append(log, epoch=1)
        full()
        for _ in range(2):
            with pytest.raises(KafkaStorageError, match="No space left"):
                rig.append(log, epoch=2)
        rig.append(log, epoch=1)
        monkeypatch.undo()
        rig.append(log, epoch=2)
        assert log.leader_epochs.entries == [(1, 0), (2, 2)]

    def test_retention_makes_room_all_the_same(self, rig, full, monkeypatch) -> None:
        log = rig.log(segment_bytes=100, retention_bytes=0)
        for _ in range(5):
            rig.append(log)
        full()
        rig.disk.fails = {"ftruncate"}
        assert log.delete_old_segments(rig.clock.now_ms) == 4
        monkeypatch.undo()
        rig.disk.fails = set()
        assert rig.append(log).first_offset == 5
        assert rig.reopen(log, Verification.FULL).leader_epochs.entries == [(0, 4)]


class TestAborts:
    """A marker is in the log for good, so what can fail about its index comes before it."""

    def test_nothing_is_written_of_an_abort_whose_index_cannot_be_read(self, rig, monkeypatch) -> None:
        log = rig.log()
        rig.append(log, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        before, load = contents(log), TransactionIndex.load

        def exhausted(path: str, _: Disk) -> TransactionIndex:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

        monkeypatch.setattr(TransactionIndex, "load", exhausted)
        with pytest.raises(KafkaStorageError, match="Too many open files"):
            log.append_as_leader(rig.marker(7, committed=False), 0, origin="coordinator")
        assert (log.log_end_offset, contents(log)) == (1, before)
        assert os.path.getsize(log.active_segment.path(".log")) == len(before)
        assert rig.append(log).first_offset == 1
        monkeypatch.setattr(TransactionIndex, "load", load)
        log.append_as_leader(rig.marker(7, committed=False), 0, origin="coordinator")
        log = rig.reopen(log, Verification.TAIL)
        assert log.log_end_offset == 3
        assert [each.last_offset for each in log.aborted_transactions(0, 3)] == [2]

    def test_an_index_that_could_not_be_read_is_not_an_empty_one(self, rig, monkeypatch) -> None:
        log = rig.log()
        abort(rig, log, 7, 0)
        log = rig.reopen(log)
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", refuse(errno.EIO))
            with pytest.raises(KafkaStorageError):
                log.aborted_transactions(0, 2)
        with monkeypatch.context() as patch:
            patch.setattr("builtins.open", refuse(errno.EMFILE))
            with pytest.raises(KafkaStorageError):
                log.aborted_transactions(0, 2)
        abort(rig, log, 8, 0)
        assert [each.producer_id for each in log.aborted_transactions(0, 4)] == [7, 8]
        assert [each.producer_id for each in rig.reopen(log).aborted_transactions(0, 4)] == [7, 8]

    def test_an_entry_that_did_not_reach_its_file_is_found_again_behind_the_snapshot(self, rig) -> None:
        log = rig.log()
        rig.disk.fails = {"pwrite"}
        abort(rig, log, 7, 0)
        log.take_snapshot()
        rig.disk.fails = set()
        log = rig.reopen(log, Verification.TAIL)
        assert [each.producer_id for each in log.aborted_transactions(0, 2)] == [7]

    @pytest.mark.parametrize("error", [MemoryError(), ValueError("a bug")], ids=repr)
    @pytest.mark.parametrize("follows", [False, True])
    def test_an_append_that_fails_in_a_way_that_nobody_knows_stops_the_log(
        self, rig, monkeypatch, follows: bool, error: Exception
    ) -> None:
        def fail(*_: object) -> None:
            raise error

        log = rig.log()
        rig.append(log)
        batch = build_batch([Record(0, 0, None, b"x")], base_offset=1)
        with monkeypatch.context() as patch:
            patch.setattr(rig.disk, "pwritev", fail)
            append = partial(log.append_as_follower, batch) if follows else partial(rig.append, log)
            with pytest.raises(KafkaStorageError, match="could not be entered"):
                append()
        with pytest.raises(KafkaStorageError, match="takes no more writes"):
            rig.append(log)

    @pytest.mark.source
    def test_a_batch_that_was_written_and_not_entered_stops_the_log(self, rig, monkeypatch) -> None:
        """Nothing is known to fail there; if something does, the next batch must not get the same offset."""
        log = rig.log()
        rig.append(log)
        with monkeypatch.context() as patch:
            patch.setattr("barnabas.log.unified_log.note_batch", refuse(errno.ENOMEM))
            with pytest.raises(KafkaStorageError, match="could not be entered"):
                rig.send(log, 7, 0)
        with pytest.raises(KafkaStorageError, match="takes no more writes"):
            rig.append(log)
        log = rig.reopen(log, Verification.TAIL)
        assert log.log_end_offset == 2
        assert rig.send(log, 7, 0).duplicate


def abort(rig, log, producer_id: int, sequence: int) -> None:
    """An aborted transaction of one record."""
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    rig.append(log, transactional=True, **options)
    log.append_as_leader(rig.marker(producer_id, committed=False), 0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)


def test_a_cut_that_fails_stops_the_log(rig, monkeypatch) -> None:
    log = rig.log()
    for _ in range(3):
        rig.append(log)
    rig.disk.fails = {"ftruncate"}
    with pytest.raises(KafkaStorageError, match="truncating to 1"):
        log.truncate_to(1)
    rig.disk.fails = set()
    with pytest.raises(KafkaStorageError, match="takes no more writes"):
        rig.append(log)


def test_want_of_descriptors_fails_the_append_and_nothing_else(rig, monkeypatch) -> None:
    log = rig.log()
    rig.append(log)
    log.release()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse(errno.EMFILE))
        with pytest.raises(KafkaStorageError, match="Too many open files"):
            rig.append(log)
        with pytest.raises(KafkaStorageError, match="Too many open files"):
            log.read(0, 100, upper_bound=1, min_one_message=True)
    assert rig.append(log).first_offset == 1


@pytest.mark.parametrize("end", [7, 0], ids=["partly", "fully"])
def test_a_truncation_without_descriptors_changes_nothing(rig, end: int) -> None:
    log = rig.log(segment_bytes=200)
    for _ in range(5):
        rig.append(log, 2)
    if not end:
        log.delete_records(4)
        log.delete_old_segments(rig.clock.now_ms)
    with no_descriptors(), pytest.raises(KafkaStorageError, match="Too many open files"):
        log.truncate_to(end)
    assert (log.offline_reason, log.log_end_offset) == (None, 10)
    assert rig.append(log, 2).first_offset == 10
    log.truncate_to(end)
    assert log.log_end_offset == end - end % 2
    assert rig.append(log, 2).first_offset == end - end % 2
