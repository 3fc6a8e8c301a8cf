"""Full and failing disks: nothing half-written stays, reads go on, and writes come back by themselves."""

import errno
import os

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.recovery import Verification


def contents(log) -> bytes:
    return b"".join(segment.read(0, segment.size) for segment in log.segments)


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


def test_a_failed_append_leaves_the_producer_free_to_retry(rig) -> None:
    log = rig.log()
    rig.disk.room = 0
    with pytest.raises(KafkaStorageError):
        rig.send(log, 7, 0)
    rig.disk.room = None
    assert not rig.send(log, 7, 0).duplicate
    assert rig.send(log, 7, 0).duplicate


def test_short_writes_are_completed(rig) -> None:
    log = rig.log()
    rig.disk.chunk = 13
    rig.append(log, 3)
    rig.append(log, 2)
    assert len(contents(log)) == len(rig.batch(3).payload) + len(rig.batch(2).payload)
    assert rig.reopen(log, Verification.FULL).log_end_offset == 5


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


def test_index_entries_wait_for_room_in_memory(rig) -> None:
    log = rig.log(index_interval_bytes=0)
    rig.disk.fails = {"pwrite"}
    for _ in range(300):
        rig.append(log)
    rig.disk.fails = set()
    log = rig.reopen(log)
    assert len(log.active_segment.offset_index) == 299
    for offset in range(300):
        assert log.read(offset, 1, upper_bound=300, min_one_message=True).size > 0


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


def test_after_a_failed_sync_there_are_no_writes_but_reads(rig) -> None:
    log = rig.log()
    rig.append(log)
    rig.disk.fails = {"fdatasync"}
    with pytest.raises(KafkaStorageError, match="fsync"):
        log.flush()
    rig.disk.fails = set()
    assert log.recovery_point == 0
    with pytest.raises(KafkaStorageError, match="takes no more writes"):
        rig.append(log)
    assert log.read(0, 1000, upper_bound=1, min_one_message=True).size > 0
    log = rig.reopen(log, Verification.FULL)
    assert rig.append(log).first_offset == 1


def test_a_sync_for_which_there_is_no_room_is_not_tried_again(rig, monkeypatch) -> None:
    """File systems that allocate late drop what had no room, and the next sync would succeed without it."""
    log = rig.log()
    rig.append(log)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rig.disk, "fdatasync", full)
    with pytest.raises(KafkaStorageError):
        log.flush()
    monkeypatch.undo()
    with pytest.raises(KafkaStorageError, match="takes no more writes"):
        rig.append(log)
    assert log.recovery_point == 0


def test_a_read_that_fails_is_a_storage_error(rig) -> None:
    log = rig.log()
    for _ in range(300):
        rig.append(log)
    rig.disk.fails = {"pread"}
    with pytest.raises(KafkaStorageError):
        log.read(0, 1000, upper_bound=300, min_one_message=True)


def test_a_flush_in_another_thread_is_void_after_a_cut(rig) -> None:
    log = rig.log()
    rig.append(log)
    rig.append(log)
    task = log.prepare_flush()
    task.run()
    log.truncate_to(1)
    rig.append(log, 5)
    task.complete()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 6
    assert log.prepare_flush() is None


def test_a_flush_runs_beside_appends_and_deletion(rig) -> None:
    log = rig.log(segment_bytes=300)
    for _ in range(10):
        rig.append(log)
    task = log.prepare_flush()
    rig.append(log)
    log.delete_records(8)
    log.delete_old_segments(rig.clock.now_ms)
    rig.environment.deletions.remove_due(rig.clock.now_ms + 10**6)
    task.run()
    task.complete()
    assert log.recovery_point == 10


def test_a_preallocated_full_disk_is_a_storage_error(rig, monkeypatch) -> None:
    log = rig.log(preallocate=True, segment_bytes=300)
    rig.append(log, 9)
    rig.disk.fails = {"ftruncate"}
    with pytest.raises(KafkaStorageError):
        rig.append(log, 9)
    rig.disk.fails = set()
    assert rig.append(log, 9).first_offset == 9


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
