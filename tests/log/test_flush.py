"""Flushes in three steps: prepared, run beside the log, completed; and disks that fail them."""

import errno
import os
from collections.abc import Iterator

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.log_loader import Verification
from barnabas.log.unified_log import UnifiedLog
from barnabas.types import TopicPartition
from faulty_filesystem import FaultyFileSystem
from log.log_files import refuse, synced_paths


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
    synced = synced_paths(monkeypatch)
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


class TestNames:
    """A directory is synced when names in it have changed: what was removed would come back behind later records."""

    def lose_power(self, files: FaultyFileSystem, log: UnifiedLog) -> None:
        log.release()
        files.lose_power(names_last=False)

    def flushed_log(self, rig) -> UnifiedLog:
        """Four segments, all on the disk."""
        log = rig.log(segment_bytes=300)
        while len(log.segments) < 4:
            rig.append(log)
        log.flush()
        return log

    def test_segments_that_a_truncation_dropped_are_gone_for_good(self, rig) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = self.flushed_log(rig)
            log.truncate_to(1)
            rig.append(log, 2)
            log.flush()
            self.lose_power(files, log)
            again = rig.load(log, Verification.FULL, recovery_point=3)
        files.close()
        assert (len(again.segments), again.log_end_offset) == (1, 3)

    def test_records_that_were_cut_before_a_clean_stop_are_gone_for_good(self, rig) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = self.flushed_log(rig)
            log.truncate_to(1)
            log.close()
            files.lose_power(names_last=False)
            again = rig.load(log, Verification.NONE)
        files.close()
        assert (len(again.segments), again.log_end_offset) == (1, 1)

    def test_segments_that_a_recovery_dropped_are_gone_for_good(self, rig) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = self.flushed_log(rig)
            os.truncate(log.segments[0].path(".log"), log.segments[0].size - 1)
            log = rig.reopen(log, Verification.FULL, recovery_point=0)
            end = rig.append(log, 2).last_offset + 1
            assert len(log.segments) == 1
            log.flush()
            self.lose_power(files, log)
            again = rig.load(log, Verification.FULL, recovery_point=end)
        files.close()
        assert (len(again.segments), again.log_end_offset) == (1, end)

    def test_a_segment_that_was_made_before_a_kill_is_found_after_a_power_loss(self, rig) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = rig.log(segment_bytes=300)
            log.flush()
            while len(log.segments) < 2:
                rig.append(log)
            log = rig.reopen(log, Verification.TAIL)
            log.flush()
            self.lose_power(files, log)
            again = rig.load(log, Verification.FULL)
        files.close()
        assert again.log_end_offset == log.log_end_offset


class TestIndexes:
    """Those of a sealed segment are on the device with the next flush, though its records were there before."""

    @pytest.fixture
    def files(self, rig) -> Iterator[FaultyFileSystem]:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            yield files
        files.close()

    def flushed_at_once(self, rig) -> UnifiedLog:
        """A log with one segment, all of it flushed, whose first index entries are on the device, the others in
        memory."""
        log = rig.log(index_interval_bytes=0)
        rig.append(log)
        rig.append(log)
        log = rig.reopen(log)
        for _ in range(3):
            rig.clock.now_ms += 1000
            rig.append(log)
            log.flush()
        return log

    def after_power_loss(self, rig, files: FaultyFileSystem, log: UnifiedLog, verification: Verification) -> UnifiedLog:
        log.release()
        files.lose_power(names_last=False)
        return rig.load(log, verification)

    def check(self, log: UnifiedLog, newest_ms: int) -> None:
        first = log.segments[0]
        assert (first.max_timestamp, len(first.offset_index)) == (newest_ms, 3)
        assert log.offset_for_timestamp(newest_ms).offset == 4

    @pytest.mark.parametrize("due", ["by a record", "by a roll"])
    def test_those_of_a_rolled_segment(self, rig, files: FaultyFileSystem, due: str) -> None:
        log = self.flushed_at_once(rig)
        newest_ms = rig.clock.now_ms
        log.roll()
        if due == "by a record":
            rig.append(log, timestamp=1000)
            log.flush()
        else:
            assert log.prepare_flush(log.active_segment.base_offset) is not None
            log.flush(log.active_segment.base_offset)
        assert log.prepare_flush() is None
        self.check(self.after_power_loss(rig, files, log, Verification.FULL), newest_ms)

    def test_those_of_a_segment_that_was_rolled_before_a_kill(self, rig, files: FaultyFileSystem) -> None:
        log = self.flushed_at_once(rig)
        newest_ms = rig.clock.now_ms
        log.roll()
        log = rig.reopen(log, Verification.TAIL)
        rig.append(log, timestamp=1000)
        log.flush()
        self.check(self.after_power_loss(rig, files, log, Verification.FULL), newest_ms)

    def test_those_of_a_roll_during_a_flush_come_with_the_next(self, rig, files: FaultyFileSystem) -> None:
        log = self.flushed_at_once(rig)
        newest_ms = rig.clock.now_ms
        rig.append(log, timestamp=1000)
        task = log.prepare_flush()
        task.run()
        log.roll()
        assert task.complete()
        log.flush()
        again = self.after_power_loss(rig, files, log, Verification.FULL)
        assert again.segments[0].max_timestamp == newest_ms

    def test_those_of_a_clean_stop(self, rig, files: FaultyFileSystem) -> None:
        log = self.flushed_at_once(rig)
        log.close()
        self.check(self.after_power_loss(rig, files, log, Verification.NONE), rig.clock.now_ms)

    def test_a_clean_stop_of_a_log_that_nobody_wrote_to_syncs_nothing(self, rig, files: FaultyFileSystem) -> None:
        log = self.flushed_at_once(rig)
        log.roll()
        log = rig.reopen(log)
        assert log.prepare_flush() is None
        files.calls.clear()
        log.close()
        synced = [call.path for call in files.calls if call.name in ("fsync", "fdatasync")]
        assert not [path for path in synced if path.endswith((".log", "index", "checkpoint"))]


class TestLeaderEpochs:
    """The file is synced before the recovery point passes the batches that have its entries as well."""

    def written(self, rig) -> UnifiedLog:
        log = rig.log(segment_bytes=300)
        for epoch in (4, 4, 5, 5, 5, 7):
            rig.append(log, epoch=epoch, size=150)
        assert log.leader_epochs.entries == [(4, 0), (5, 2), (7, 5)]
        return log

    @pytest.mark.parametrize("names_last", [False, True])
    def test_those_below_the_recovery_point_survive_a_power_loss(self, rig, names_last: bool) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = self.written(rig)
            log.flush()
            log.release()
            files.lose_power(names_last=names_last)
            again = rig.load(log, Verification.FULL)
        files.close()
        assert again.leader_epochs.entries == [(4, 0), (5, 2), (7, 5)]

    def test_a_clean_stop_brings_them_to_the_device(self, rig) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = self.written(rig)
            log.flush()
            log.truncate_to(3)
            log.close()
            files.lose_power(names_last=True)
            again = rig.load(log, Verification.NONE)
        files.close()
        assert again.leader_epochs.entries == [(4, 0), (5, 2)]

    @pytest.mark.parametrize("verification", [Verification.TAIL, Verification.FULL])
    def test_what_a_killed_process_wrote_is_synced_by_the_next(self, rig, verification: Verification) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            log = rig.reopen(self.written(rig), verification)
            log.flush()
            log.release()
            files.lose_power(names_last=True)
            again = rig.load(log, Verification.FULL)
        files.close()
        assert again.leader_epochs.entries == [(4, 0), (5, 2), (7, 5)]

    def test_a_write_during_a_flush_is_synced_by_the_next(self, rig) -> None:
        log = self.written(rig)
        task = log.prepare_flush()
        task.run()
        rig.append(log, epoch=8)
        assert task.complete()
        assert log.leader_epochs.writes_synced < log.leader_epochs.writes
        log.flush()
        assert log.leader_epochs.writes_synced == log.leader_epochs.writes

    @pytest.mark.parametrize("damage", ["", "0\n2\n4 0\n"])
    def test_a_damaged_file_is_made_anew_from_the_batches(self, rig, damage: str) -> None:
        log = self.written(rig)
        log.flush()
        with open(log.leader_epochs.path, "w", encoding="ascii") as file:
            file.write(damage)
        again = rig.reopen(log, Verification.FULL)
        assert again.leader_epochs.entries == [(4, 0), (5, 2), (7, 5)]
        assert again.offset_for_leader_epoch(4) == (4, 2)
