"""All logs of a broker, across starts and ends."""

import errno
import json
import os
import shutil
import threading
import uuid
from pathlib import Path

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.log.directories.checkpoints import CLEAN_SHUTDOWN, HIGH_WATERMARK_CHECKPOINT
from barnabas.log.directories.disk import Disk
from barnabas.log.log_manager import LogManager
from barnabas.types import TopicPartition
from faulty_filesystem import FaultyFileSystem
from log.log_files import refuse, synced_paths
from log.manager_rig import A0, A1, B0, CONFIG, die, start


def test_logs_are_there_after_a_clean_end(rig) -> None:
    manager, topic_id = start(rig.manager()), uuid.uuid4()
    for tp in (A0, A1, B0):
        rig.append(manager.create(tp, topic_id, CONFIG), 4)
    manager.shutdown(broker_epoch=9)
    marker = json.loads((rig.root / "data" / ".kafka_cleanshutdown").read_text())
    assert marker == {"version": 0, "brokerEpoch": 9}
    manager = start(rig.manager())
    assert set(manager.logs) == {A0, A1, B0}
    for log in manager.logs.values():
        assert (log.log_end_offset, log.high_watermark, log.recovery_point, log.topic_id) == (4, 4, 4, topic_id)
    assert not (rig.root / "data" / ".kafka_cleanshutdown").exists()


def test_the_files_of_a_data_directory_are_kafkas(rig) -> None:
    manager = start(rig.manager(), cluster_id="MkU3OEVBNTcwNTJENDM2Qg")
    log = manager.create(A0, uuid.uuid4(), CONFIG)
    rig.append(log, 5)
    log.delete_records(2)
    manager.shutdown()
    data = rig.root / "data"
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 5\n"
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\na 0 2\n"
    assert (data / "replication-offset-checkpoint").read_text() == "0\n1\na 0 5\n"
    properties = dict(line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines()[1:])
    assert properties["cluster.id"] == "MkU3OEVBNTcwNTJENDM2Qg"
    assert (properties["node.id"], properties["version"]) == ("1", "1")
    assert len(properties["directory.id"]) == 22
    assert sorted(os.listdir(data / "a-0")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000005.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


class _SlowDisk(Disk):
    """Each of two logs waits for the other one to be read."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)
        self.seen: set[int] = set()

    def pread(self, fd: int, size: int, position: int) -> bytes:
        inode = os.fstat(fd).st_ino
        if inode not in self.seen:
            self.seen.add(inode)
            self.both.wait(20)
        return super().pread(fd, size, position)


@pytest.mark.parametrize(("directories", "threads"), [(1, 2), (2, 1)])
def test_logs_are_read_at_the_same_time_after_the_machine_went_down(rig, directories: int, threads: int) -> None:
    paths = [rig.root / str(number) for number in range(directories)]
    manager = start(LogManager(paths, rig.clock, boot_id="boot-1"))
    for tp in (A0, A1):
        rig.append(manager.create(tp, None, CONFIG))
    die(manager)
    manager = start(LogManager(paths, rig.clock, boot_id="boot-2", disk=_SlowDisk(), recovery_threads=threads))
    assert [log.log_end_offset for log in manager.logs.values()] == [1, 1]


def test_progress_is_told(rig) -> None:
    manager = start(rig.manager())
    for tp in (A0, A1, B0):
        manager.create(tp, None, CONFIG)
    manager.shutdown()
    told = []
    start(rig.manager(recovery_threads=2), progress=lambda done, total, tp: told.append((done, total, tp)))
    assert [item[:2] for item in told] == [(1, 3), (2, 3), (3, 3)]
    assert {item[2] for item in told} == {A0, A1, B0}


def test_two_copies_of_a_partition_are_refused(rig) -> None:
    for name in ("one", "two"):
        (rig.root / name / "a-0").mkdir(parents=True)
        (rig.root / name / "a-0" / f"{0:020}.log").touch()
    manager = LogManager([rig.root / "one", rig.root / "two"], rig.clock, boot_id="boot")
    with pytest.raises(UsageError, match="same partition"):
        start(manager)
    shutil.rmtree(rig.root / "two" / "a-0")
    start(manager)


def test_new_logs_go_where_there_are_fewest(rig) -> None:
    manager = start(LogManager([rig.root / "one", rig.root / "two"], rig.clock, boot_id="boot"))
    for number in range(6):
        manager.create(TopicPartition("t", number), None, CONFIG)
    assert len(list((rig.root / "one").glob("t-*"))) == 3
    assert manager.directory_of(TopicPartition("t", 0)).path != manager.directory_of(TopicPartition("t", 1)).path


def test_creating_twice_is_getting(rig) -> None:
    manager, topic_id = start(rig.manager()), uuid.uuid4()
    log = manager.create(A0, None, CONFIG)
    assert manager.create(A0, topic_id, LogConfig(segment_bytes=500)) is log
    assert log.topic_id == topic_id
    assert log.config.segment_bytes == 500
    assert manager.get(A1) is None


def test_a_log_that_cannot_be_made_is_a_storage_error(rig) -> None:
    manager = start(rig.manager())
    (rig.root / "data" / "a-0").write_text("in the way")
    with pytest.raises(KafkaStorageError, match="a-0"):
        manager.create(A0, None, CONFIG)
    assert manager.get(A0) is None


def test_a_deleted_log_disappears_in_two_steps(rig) -> None:
    manager = start(rig.manager())
    log = manager.create(A0, None, CONFIG)
    rig.append(log, 3)
    piece = log.read(0, 1000, upper_bound=3, min_one_message=True).file_slice
    manager.delete(A0)
    assert manager.get(A0) is None
    (left,) = (rig.root / "data").glob("a-0.*-delete")
    again = manager.create(A0, None, CONFIG)
    assert again.log_end_offset == 0
    assert manager.remove_deleted(rig.clock.now_ms + CONFIG.file_delete_delay_ms - 1) == 0
    assert left.exists()
    assert manager.remove_deleted(rig.clock.now_ms + CONFIG.file_delete_delay_ms) == 1
    assert not left.exists()
    assert len(piece.read()) == piece.size


def test_a_deletion_is_finished_by_the_next_process(rig) -> None:
    manager = start(rig.manager())
    manager.create(A0, None, CONFIG)
    manager.delete(A0)
    die(manager)
    manager = start(rig.manager())
    assert not manager.logs
    manager.remove_deleted(rig.clock.now_ms)
    assert not list((rig.root / "data").glob("*-delete"))


def test_settings_reach_the_logs_of_their_topic(rig) -> None:
    manager = start(rig.manager())
    logs = [manager.create(tp, None, CONFIG) for tp in (A0, A1, B0)]
    manager.update_config("a", LogConfig(segment_bytes=999))
    assert [log.config.segment_bytes for log in logs] == [999, 999, CONFIG.segment_bytes]


class TestFromTimeToTime:
    def test_rolled_segments_and_due_logs_are_flushed(self, rig) -> None:
        manager = start(rig.manager())
        rolled = manager.create(A0, None, LogConfig(segment_bytes=100))
        due = manager.create(A1, None, LogConfig(flush_ms=1000))
        idle = manager.create(B0, None, CONFIG)
        for log in (rolled, due, idle):
            rig.append(log)
            rig.append(log)
        assert manager.flush_dirty_logs(rig.clock.now_ms) == 1
        assert [log.recovery_point for log in (rolled, due, idle)] == [1, 0, 0]
        rig.clock.now_ms += 1000
        assert manager.flush_dirty_logs(rig.clock.now_ms) == 1
        assert [log.recovery_point for log in (rolled, due, idle)] == [1, 2, 0]
        assert manager.flush_dirty_logs(rig.clock.now_ms) == 0

    def test_retention_reaches_all_logs(self, rig) -> None:
        manager = start(rig.manager())
        for tp in (A0, B0):
            log = manager.create(tp, None, LogConfig(segment_bytes=100, retention_bytes=0))
            for _ in range(3):
                rig.append(log)
        assert manager.cleanup_logs(rig.clock.now_ms) == 6

    def test_producers_expire(self, rig) -> None:
        manager = start(rig.manager(producer_expiration_ms=1000))
        rig.send(manager.create(A0, None, CONFIG), 7, 0)
        assert manager.expire_producers(rig.clock.now_ms + 999) == 0
        assert manager.expire_producers(rig.clock.now_ms + 1000) == 1

    def test_producers_of_all_logs_together_are_bounded(self, rig, monkeypatch) -> None:
        """A log with few of them pays nothing for one with many."""
        monkeypatch.setattr("barnabas.log.log_manager.ALL_PRODUCERS_MAX", 10)
        manager = start(rig.manager())
        logs = [manager.create(tp, None, CONFIG) for tp in (A0, A1, B0)]
        for log, count in zip(logs, (2, 30, 20), strict=True):
            for producer_id in range(count):
                rig.send(log, producer_id, 0)
        manager.bound_producers()
        kept = [[entry.producer_id for entry in log.active_producers()] for log in logs]
        assert kept == [[0, 1], [26, 27, 28, 29], [16, 17, 18, 19]]

    def test_checkpoints_are_written_when_they_change(self, rig) -> None:
        manager = start(rig.manager())
        log, path = manager.create(A0, None, CONFIG), Path(rig.root / "data" / "replication-offset-checkpoint")
        rig.append(log)
        manager.checkpoint_high_watermarks()
        first = path.stat().st_ino
        manager.checkpoint_high_watermarks()
        assert path.stat().st_ino == first
        rig.append(log)
        manager.checkpoint_high_watermarks()
        assert path.read_text() == "0\n1\na 0 2\n"

    def test_a_disk_that_fails_at_the_end_leaves_the_others_clean(self, rig, monkeypatch) -> None:
        paths = [rig.root / name for name in ("one", "two", "three")]
        manager = start(LogManager(paths, rig.clock, boot_id="boot-1"))
        for partition, directory in enumerate(manager.directories):
            manager.prefer("a", partition, directory)
            rig.append(manager.create(TopicPartition("a", partition), None, CONFIG))
        monkeypatch.setattr(manager.directories[0], "write_checkpoint", refuse(errno.ENOSPC))
        manager.get(A1).take_offline("a sync failed")
        with pytest.raises(KafkaStorageError):
            manager.shutdown()
        assert [(path / CLEAN_SHUTDOWN).exists() for path in paths] == [False, False, True]

    def test_a_log_that_cannot_be_closed_makes_the_end_unclean(self, rig) -> None:
        manager = start(rig.manager())
        for tp in (A0, B0):
            rig.append(manager.create(tp, None, CONFIG))
        rig.disk.fails = {"fdatasync"}
        with pytest.raises(KafkaStorageError):
            manager.shutdown()
        rig.disk.fails = set()
        assert not (rig.root / "data" / ".kafka_cleanshutdown").exists()
        manager = start(rig.manager())
        assert [log.log_end_offset for log in manager.logs.values()] == [1, 1]

    @pytest.mark.parametrize("count", [0, 1])
    def test_an_end_after_a_kill_syncs_the_names_of_all_logs_at_once(
        self, rig, monkeypatch: pytest.MonkeyPatch, count: int
    ) -> None:
        manager = start(rig.manager())
        for index in range(20):
            log = manager.create(TopicPartition("idle", index), None, CONFIG)
            for _ in range(count):
                rig.append(log)
        manager.shutdown()
        die(start(rig.manager()))
        manager = start(rig.manager())
        synced = synced_paths(monkeypatch)
        manager.shutdown()
        assert synced.count(manager.directories[0].path) == 2, "the names of the logs, and that of the marker"

    def test_new_logs_survive_a_power_loss_after_the_end(self, rig) -> None:
        files = FaultyFileSystem(str(rig.root))
        with files.watch():
            manager = start(rig.manager())
            files.sync_names(str(rig.root))
            for tp in (A0, B0):
                rig.append(manager.create(tp, None, CONFIG))
            manager.shutdown()
            files.lose_power(names_last=False)
            manager = start(rig.manager(boot_id="boot-2"))
            assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == {A0: 1, B0: 1}
            manager.shutdown()
        files.close()

    def test_an_end_without_syncing_keeps_the_old_recovery_points(self, rig) -> None:
        manager = start(rig.manager())
        rig.append(manager.create(A0, None, CONFIG))
        manager.shutdown(flush=False)
        assert (rig.root / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 0\n"
        assert start(rig.manager()).get(A0).log_end_offset == 1


def test_a_directory_that_fails_keeps_no_other_from_its_checkpoints(tmp_path: Path) -> None:
    manager = start(LogManager([tmp_path / "one", tmp_path / "two"], SYSTEM_CLOCK))
    for tp, directory in ((A0, 0), (A1, 1)):
        manager.prefer(tp.topic, tp.partition, manager.directories[directory])
        manager.create(tp, None, CONFIG)
    (tmp_path / "one").rename(tmp_path / "unmounted")
    with pytest.raises(FileNotFoundError):
        manager.checkpoint_high_watermarks()
    assert f"{A1.topic} {A1.partition} 0" in (tmp_path / "two" / HIGH_WATERMARK_CHECKPOINT).read_text()
    (tmp_path / "unmounted").rename(tmp_path / "one")
    manager.shutdown()


def test_a_new_log_is_made_where_there_is_room_and_a_damaged_ones_copy_on_another_disk(rig, monkeypatch) -> None:
    manager = start(LogManager([rig.root / name for name in ("one", "two", "three")], rig.clock, boot_id="boot-1"))
    one, two, three = manager.directories
    for device, directory in enumerate(manager.directories):
        directory.device = device
    free = {one.path: 0, two.path: 1 << 40, three.path: 1 << 40}
    monkeypatch.setattr("barnabas.log.log_manager.free_bytes", free.__getitem__)
    partitions = [TopicPartition("a", number) for number in range(6)]
    assert {manager.choose_directory(tp, 0) for tp in partitions} == {two, three}
    two.has_failed = True
    assert {manager.choose_directory(tp, 0) for tp in partitions} == {three}
    two.has_failed = False
    manager.create(A0, None, CONFIG, replica_position=0)
    home = manager.directory_of(A0)
    (other,) = {two, three} - {home}
    assert manager.choose_directory(A0, 0, anew=True) is other
    free[other.path] = 1
    assert manager.choose_directory(A0, 0, room=100, anew=True) is home
    assert manager.aside(A0) == ""
    assert manager.put_aside(A0) == manager.aside(A0) != manager.aside(A1)
    manager.shutdown()
