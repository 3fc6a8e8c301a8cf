"""Full and failing disks: nothing half-written stays, reads go on, and writes come back by themselves."""

import errno
import os

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.directories.disk import Disk
from barnabas.log.indexes.transaction_index import TransactionIndex
from barnabas.log.log_loader import Verification
from barnabas.types import TopicPartition
from faulty_filesystem import FaultyFileSystem


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


def test_a_flush_that_overtakes_another_syncs_the_names_of_new_files_itself(rig, monkeypatch) -> None:
    """A batch that durability=fsync acknowledges must not be in a file whose name only a later sync makes durable."""
    log = rig.log(segment_bytes=300)
    log.flush()
    while len(log.segments) < 2:
        rig.append(log)
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    of_rolled = log.prepare_flush(log.active_segment.base_offset)
    of_all = log.prepare_flush()
    of_all.run()
    assert of_all.complete()
    assert log.recovery_point == log.log_end_offset
    assert log.directory in synced
    of_rolled.run()
    assert of_rolled.complete()
    synced.clear()
    rig.append(log)
    log.flush()
    assert log.directory not in synced, "no file is new"


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
    assert not task.complete(), "the names of what was deleted are not durable yet"
    log.flush()
    assert log.recovery_point == 11


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


def refuse(code: int):
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_a_segment_that_was_made_by_half_does_not_end_the_log(rig, monkeypatch) -> None:
    """It is named after the offset that the old segment gets next: a start would hide what stands there."""
    log = rig.log(segment_bytes=300)
    rig.append(log, size=100)
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.indexes.sparse_index.SparseIndex.reset", refuse(errno.EIO))
        with pytest.raises(KafkaStorageError, match="no new segment"):
            rig.append(log, size=200)
    assert rig.append(log, size=10).first_offset == 1
    assert rig.reopen(log, Verification.TAIL).log_end_offset == 2


def test_a_segment_that_cannot_be_removed_again_stops_the_log(rig, monkeypatch) -> None:
    log = rig.log(segment_bytes=300)
    rig.append(log, size=100)
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.indexes.sparse_index.SparseIndex.reset", refuse(errno.EIO))
        patch.setattr(os, "unlink", refuse(errno.EIO))
        with pytest.raises(KafkaStorageError):
            rig.append(log, size=200)
    with pytest.raises(KafkaStorageError, match="takes no more writes"):
        rig.append(log, size=10)
    log = rig.reopen(log, Verification.TAIL)
    assert rig.append(log, size=10).first_offset == 1


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


def test_a_file_that_is_gone_does_not_come_back_empty(rig) -> None:
    log = rig.log()
    rig.append(log)
    log.release()
    os.unlink(log.active_segment.path(".log"))
    with pytest.raises(KafkaStorageError, match="No such file"):
        rig.append(log)
    assert not os.path.exists(log.active_segment.path(".log"))


class TestFailedSync:
    """The kernel tells of it once, and may have dropped what it could not write."""

    def test_the_next_sync_does_not_make_up_for_it(self, rig) -> None:
        log = rig.log()
        rig.append(log)
        first, second = log.prepare_flush(), log.prepare_flush()
        rig.disk.fails = {"fdatasync"}
        first.run()
        rig.disk.fails = set()
        second.run()
        for task in (second, first):
            with pytest.raises(KafkaStorageError, match="fsync"):
                task.complete()
        with pytest.raises(KafkaStorageError, match="takes no more writes"):
            log.flush()
        with pytest.raises(KafkaStorageError, match="takes no more writes"):
            log.close()
        assert log.recovery_point == 0

    def test_a_batch_that_may_be_lost_is_not_acknowledged_as_a_duplicate(self, rig) -> None:
        log = rig.log()
        rig.send(log, 7, 0)
        rig.disk.fails = {"fdatasync"}
        with pytest.raises(KafkaStorageError):
            log.flush()
        with pytest.raises(KafkaStorageError, match="takes no more writes"):
            rig.send(log, 7, 0)

    def test_it_is_no_clean_shutdown(self, rig) -> None:
        manager = rig.manager()
        manager.startup(lambda _: rig.config, node_id=1)
        log = manager.create(rig.topic_partition, None, rig.config)
        rig.append(log)
        rig.disk.fails = {"fdatasync"}
        with pytest.raises(KafkaStorageError):
            log.flush()
        rig.disk.fails = set()
        assert manager.flush_dirty_logs(rig.clock.now_ms) == 0
        with pytest.raises(KafkaStorageError, match="takes no more writes"):
            manager.shutdown()
        assert not os.path.exists(rig.root / "data" / ".kafka_cleanshutdown")

    def test_the_next_start_reads_what_the_device_has(self, rig) -> None:
        """The page cache still shows the record that could not be written."""
        manager = rig.manager()
        manager.startup(lambda _: rig.config, node_id=1)
        log = manager.create(rig.topic_partition, None, rig.config)
        rig.append(log)
        log.flush()
        size = log.active_segment.size
        rig.append(log)
        rig.disk.fails = {"fdatasync"}
        with pytest.raises(KafkaStorageError):
            log.flush()
        rig.disk.fails = set()
        with pytest.raises(KafkaStorageError):
            manager.shutdown()
        rig.disk.forget_cached = lambda fd: os.ftruncate(fd, size)
        manager = rig.manager()
        manager.startup(lambda _: rig.config, node_id=1)
        log = manager.logs[rig.topic_partition]
        assert log.log_end_offset == 1
        assert rig.append(log).first_offset == 1
        manager.shutdown()

    def test_want_of_descriptors_is_none(self, rig, monkeypatch) -> None:
        log = rig.log(segment_bytes=100)
        rig.append(log)
        rig.append(log)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse(errno.EMFILE))
            with pytest.raises(KafkaStorageError, match="Too many open files"):
                log.flush()
        assert log.recovery_point == 0
        rig.append(log)
        log.flush()
        assert log.recovery_point == 3


def test_a_flush_of_many_segments_takes_one_descriptor_at_a_time(rig) -> None:
    root = rig.root / "data"
    files = FaultyFileSystem(str(root))
    config = LogConfig(segment_bytes=100)
    with files.watch():
        manager = rig.manager(open_files_max=4)
        manager.startup(lambda _: config, node_id=1)
        for partition in range(10):
            log = manager.create(TopicPartition("flights", partition), None, config)
            for _ in range(5):
                rig.append(log)
        files.most_open = 0
        tasks = manager.collect_flushes(rig.clock.now_ms)
        for task in tasks:
            task.run()
        assert all(task.complete() for task in tasks)
        assert len(tasks) == 10
        assert files.most_open <= 4 + 1 + 1, "the pool's, the one that is synced, the lock"
        manager.shutdown()
    files.close()
