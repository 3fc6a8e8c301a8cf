"""Data directories: their lock, their identity, the trust in what the last process left, the logs in them."""

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError, UsageError
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.log_manager import LogManager
from barnabas.types import TopicPartition
from log.log_files import fail_at
from log.manager_rig import A0, A1, B0, CONFIG, die, start


@pytest.mark.parametrize(("boot", "expected"), [("boot-1", 4), ("boot-2", 0)])
def test_the_boot_decides_how_much_is_read(rig, monkeypatch, boot: str, expected: int) -> None:
    """Damage far in front of the tail is the sign: only a full check can find it."""
    monkeypatch.setattr("barnabas.log.log_loader.TAIL_BYTES", 100)
    manager = start(rig.manager())
    log = manager.create(A0, None, LogConfig(index_interval_bytes=0))
    for _ in range(4):
        rig.append(log)
    log.active_segment.offset_index.write_tail()
    path = log.active_segment.path(".log")
    die(manager)
    with open(path, "r+b") as file:
        file.seek(65)
        file.write(b"\xff")
    assert start(rig.manager(boot_id=boot)).get(A0).log_end_offset == expected


def test_a_copied_directory_is_not_trusted(rig) -> None:
    manager = start(rig.manager())
    manager.create(A0, None, CONFIG)
    die(manager)
    states = manager.directories[0].states("boot-1")
    assert states(A0).trusted_boot
    subprocess.run(["cp", "-r", rig.root / "data", rig.root / "copy"], check=True)
    copy = start(rig.manager("copy"))
    die(copy)
    (rig.root / "copy" / "barnabas-running").write_text((rig.root / "data" / "barnabas-running").read_text())
    assert not copy.directories[0].states("boot-1")(A0).trusted_boot


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_a_copy_in_the_place_of_a_directorys_files_is_not_trusted(rig, durability: str) -> None:
    """`rm -rf data/*; cp -a backup/. data`: boot, directory and registration are those of before."""

    def started() -> LogManager:
        manager = start(rig.manager(durability=durability), tells_losses=True)
        manager.note_next_registration("next", "")
        return manager

    manager = started()
    manager.note_registration(1)
    manager.create(A0, None, CONFIG)
    die(manager)
    manager = started()
    assert (manager.may_have_lost_records, manager.logs.keys()) == (False, {A0})
    die(manager)
    data = rig.root / "data"
    subprocess.run(["sh", "-c", f"cp -a {data} {data}.copy; rm -r {data}/*; cp -a {data}.copy/. {data}"], check=True)
    for _ in range(2):
        manager = started()
        assert manager.may_have_lost_records, "until others know"
        die(manager)
    manager = started()
    manager.note_registration(2)
    die(manager)
    assert not started().may_have_lost_records


@pytest.mark.parametrize(
    ("boot", "end", "lost"),
    [("boot-1", "killed", False), ("boot-2", "killed", True), ("boot-2", "stopped", False)],
)
def test_records_may_be_lost_when_the_machine_goes_down(rig, boot: str, end: str, lost: bool) -> None:
    manager = start(rig.manager())
    assert not manager.may_have_lost_records, "a new directory has none"
    manager.create(A0, None, CONFIG)
    if end == "killed":
        die(manager)
    else:
        manager.shutdown()
    assert start(rig.manager(boot_id=boot)).may_have_lost_records is lost


@pytest.mark.parametrize("end", ["killed", "failed"])
def test_a_start_that_told_nobody_of_lost_records_leaves_that_to_the_next(rig, end: str) -> None:
    first = start(rig.manager())
    first.create(A0, None, CONFIG)
    die(first)
    for _ in range(2):
        manager = start(rig.manager(boot_id="boot-2"), tells_losses=True)
        assert manager.may_have_lost_records
        if end == "killed":
            die(manager)
        else:
            manager.abandon()
    manager = start(rig.manager(boot_id="boot-2"), tells_losses=True)
    manager.note_registration(1)
    die(manager)
    assert not start(rig.manager(boot_id="boot-2"), tells_losses=True).may_have_lost_records


@pytest.mark.parametrize(("before", "now"), [("page-cache", "fsync"), ("fsync", "page-cache"), ("fsync", "fsync")])
def test_the_durability_of_the_process_that_died_decides_what_may_be_lost(rig, before: str, now: str) -> None:
    first = start(rig.manager(durability=before))
    first.create(A0, None, CONFIG)
    die(first)
    manager = start(rig.manager(boot_id="boot-2", durability=now), tells_losses=True)
    assert manager.may_have_lost_records is (before == "page-cache")
    manager.note_registration(1)
    die(manager)
    assert start(rig.manager(boot_id="boot-3")).may_have_lost_records is (now == "page-cache")


def test_a_directory_of_before_this_was_written_counts_as_the_page_caches(rig) -> None:
    manager = start(rig.manager(durability="fsync"))
    die(manager)
    (rig.root / "data" / "barnabas-running").write_text('{"bootId": "boot-1"}')
    assert start(rig.manager(boot_id="boot-2", durability="fsync")).may_have_lost_records


def test_a_failed_sync_is_no_loss_with_fsync(rig) -> None:
    manager = start(rig.manager(durability="fsync"))
    log = manager.create(A0, None, CONFIG)
    rig.append(log)
    rig.disk.fails = {"fdatasync"}
    with pytest.raises(KafkaStorageError):
        log.flush()
    rig.disk.fails = set()
    die(manager)
    directory = manager.directories[0]
    assert not directory.states("boot-1")(A0).trusted_boot
    assert not directory.may_have_lost_records


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_what_the_page_cache_has_is_synced_before_the_directory_counts_as_synced(rig, boot: str) -> None:
    first = start(rig.manager())
    log = first.create(A0, None, CONFIG)
    rig.append(log, 10)
    die(first)
    manager = start(rig.manager(boot_id=boot, durability="fsync"), tells_losses=True)
    manager.note_registration(1)
    assert manager.logs[A0].recovery_point == 10


def test_an_unknown_boot_is_not_trusted(rig) -> None:
    manager = start(rig.manager(boot_id=""))
    die(manager)
    assert not manager.directories[0].states("")(A0).trusted_boot


def test_a_second_broker_is_kept_out(rig) -> None:
    manager = start(rig.manager())
    with pytest.raises(UsageError, match=r"in use by another broker.*another directory"):
        start(rig.manager())
    code = f"""
import fcntl, os
fd = os.open({str(rig.root / "data" / ".lock")!r}, os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    raise SystemExit(3)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3, "Kafka's kind of lock is held too"
    manager.shutdown()
    start(rig.manager())


def test_another_brokers_directory_is_refused(rig) -> None:
    start(rig.manager(), cluster_id="one").shutdown()
    with pytest.raises(UsageError, match=r"node\.id=1, the broker has 2"):
        start(rig.manager(), node_id=2)
    with pytest.raises(UsageError, match=r"cluster\.id=one, the broker has two"):
        start(rig.manager(), cluster_id="two")
    assert start(rig.manager()).cluster_id == "one"


def test_a_path_that_is_no_directory_is_refused(rig) -> None:
    (rig.root / "data").write_text("a file")
    with pytest.raises(UsageError, match=str(rig.root / "data")):
        start(rig.manager())


def test_long_names_can_be_deleted(rig) -> None:
    manager, tp = start(rig.manager()), TopicPartition("t" * 249, 0)
    manager.create(tp, None, CONFIG)
    manager.delete(tp)
    (left,) = (rig.root / "data").glob("*-delete")
    assert len(left.name) == 255


def test_what_is_not_a_log_is_left_alone(rig) -> None:
    for name in ("lost+found", "__cluster_metadata-0", "a-0.0123-stray", "a-0.0123-future", "notes", "a-x", "-3"):
        (rig.root / "data" / name).mkdir(parents=True)
    assert dict(start(rig.manager()).logs) == {}


def test_logs_that_belong_nowhere_are_put_aside(rig, caplog: pytest.LogCaptureFixture) -> None:
    manager, old, new = start(rig.manager()), uuid.uuid4(), uuid.uuid4()
    for tp, topic_id in ((A0, new), (A1, old), (B0, None)):
        rig.append(manager.create(tp, topic_id, CONFIG), 4)
    (rig.root / "data" / "backup-2024").mkdir()
    manager.shutdown()

    def belongs(tp: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        return topic_id == new

    manager = start(rig.manager(), belongs=belongs)
    assert set(manager.logs) == {A0}
    strays = sorted(path.name for path in (rig.root / "data").glob("*-stray"))
    assert [name.partition(".")[0] for name in strays] == ["a-1", "b-c-0"]
    assert all((rig.root / "data" / name / f"{0:020}.log").stat().st_size for name in strays)
    assert [sum(name in line for line in caplog.messages) for name in strays] == [1, 1]
    assert (rig.root / "data" / "backup-2024").is_dir(), "no log of anybody's"
    manager.shutdown()
    assert set(start(rig.manager()).logs) == {A0}, "a stray stays one"


def test_the_checkpoints_tell_of_a_vanished_log_until_it_is_made_anew(rig) -> None:
    """A start that is killed before others lead must not forget it."""
    manager = start(rig.manager())
    for name in (A0, A1):
        rig.append(manager.create(name, None, CONFIG), 4)
    manager.shutdown()
    shutil.rmtree(rig.root / "data" / "a-0")

    def known() -> dict[TopicPartition, int]:
        directory = DataDirectory(str(rig.root / "data"))
        directory.claim()
        try:
            return directory.checkpointed_logs()
        finally:
            directory.unlock()

    for _ in range(2):
        manager = rig.manager()
        manager.directories[0].vanished = {A0: known()[A0]}
        start(manager)
        manager.checkpoint_high_watermarks()
        die(manager)
        assert known() == {A0: 4, A1: 4}
    manager = rig.manager()
    manager.directories[0].vanished = known()
    start(manager).create(A0, None, CONFIG)
    die(manager)
    assert known() == {A1: 4}


def test_damaged_checkpoints_only_cost_time(rig) -> None:
    manager = start(rig.manager())
    rig.append(manager.create(A0, None, CONFIG), 4)
    manager.shutdown()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (rig.root / "data" / name).write_bytes(b"\0\0\0")
    assert start(rig.manager()).get(A0).log_end_offset == 4


def test_a_directory_that_is_gone_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory(str(tmp_path))
    assert directory.failure() is None
    assert not list(tmp_path.iterdir())
    failed = DataDirectory(str(tmp_path / "unmounted")).failure()
    assert isinstance(failed, FileNotFoundError)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert directory.failure() is None, "a full disk is not lost"


def test_a_disk_that_does_not_tell_its_identity_is_none_that_was_never_used(rig, monkeypatch) -> None:
    start(rig.manager()).shutdown()
    directory = DataDirectory(str(rig.root / "data"))
    with monkeypatch.context() as patch:
        fail_at(patch, "stat", "meta.properties")
        with pytest.raises(UsageError, match="cannot be used: Input/output error"):
            directory.claim()
    directory.claim()
    assert directory.used
    directory.unlock()


def test_a_checkpoint_that_the_disk_hides_is_none_that_there_is_not(rig, monkeypatch) -> None:
    """It would not be written anew, and what it says of logs that were deleted would count later."""
    manager = start(rig.manager())
    rig.append(manager.create(A0, None, CONFIG))
    manager.shutdown()
    with monkeypatch.context() as patch:
        fail_at(patch, "stat", "recovery-point-offset-checkpoint")
        with pytest.raises(UsageError, match="Input/output error"):
            start(rig.manager())
    assert start(rig.manager()).logs[A0].log_end_offset == 1
