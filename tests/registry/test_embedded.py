"""The registry in a SQLite file: the conformance suite, and what is particular to a file."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from barnabas.errors import NotYet, UsageError
from barnabas.metadata.image import PartitionImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.embedded_tables import cannot_be_used
from barnabas.registry.registry import (
    BrokerRegistration,
    CreateTopic,
    DeleteTopic,
    LeaderChange,
    RegistryUnavailable,
    SetBrokerConfig,
    SetPartition,
    start_with_registry,
)
from barnabas.registry.sqlite_file import may_pass
from barnabas.types import BrokerId
from registry import conformance
from registry.stores import TrackedFile, let_go
from stopwatch import Stopwatch

PARTITION = PartitionImage(1, 0, (1,), (1,), 0)


class EmbeddedHarness(conformance.Processes):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "registry.db"
        self.opened: list[TrackedFile] = []

    def open(self) -> EmbeddedRegistry:
        registry = TrackedFile(self.path, is_running=self.is_running)
        registry.opened = self.opened
        self.opened.append(registry)
        return registry

    def kill(self, process: str) -> None:
        super().kill(process)
        let_go(self.opened, process)

    def execute(self, statement: str) -> list[Any]:
        """Executes a statement on the file, past the registry."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            return db.execute(statement).fetchall()

    def close(self) -> None:
        for registry in self.opened:
            registry.close()


class LaterHarness(EmbeddedHarness):
    """The file has what a later release has added to it, which a cluster is being upgraded to."""

    def open(self) -> EmbeddedRegistry:
        if not self.opened:
            super().open().close()
            for (table,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                self.execute(f"ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
            self.execute("CREATE TABLE later (name TEXT)")
            self.execute("INSERT INTO configs (kind, resource, name, value) VALUES ('later', 'r', 'a', '1')")
            self.execute("INSERT INTO changes (version, kind, name) SELECT version, 'later', 'r' FROM state")
        return super().open()


@pytest.fixture
def harness(tmp_path: Path) -> EmbeddedHarness:
    return EmbeddedHarness(tmp_path)


@pytest.mark.parametrize("kind", [EmbeddedHarness, LaterHarness])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conforms(check: Callable[[conformance.Harness], None], kind: type[EmbeddedHarness], tmp_path: Path) -> None:
    harness = kind(tmp_path)
    try:
        check(harness)
    finally:
        harness.close()


def test_lists_that_a_later_release_has_added_are_passed_over(harness: EmbeddedHarness) -> None:
    one, epoch = controller(harness)
    reassigned = PARTITION._replace(adding_replicas=(2,), elr=(3,))
    assert one.write([CreateTopic("t", UUID(int=5), (reassigned,), {})], controller_epoch=epoch)
    known = one.load().image
    harness.execute("UPDATE partitions SET unsettled = unsettled || '/7'")
    assert harness.open().load().image.topics["t"].partitions == (reassigned,)
    harness.execute("UPDATE state SET version = version + 1")
    harness.execute("INSERT INTO changes (version, kind, name) SELECT version, 'topic', 't' FROM state")
    assert one.load(known).image.topics["t"].partitions == (reassigned,)
    harness.close()


def controller(harness: EmbeddedHarness) -> tuple[EmbeddedRegistry, int]:
    registry = harness.open()
    registry.register_broker(BrokerRegistration(1, {UUID(int=1): "/data"}, (), process="one"))
    epoch = registry.elect_controller()
    assert epoch is not None
    return registry, epoch


def test_the_release_before_goes_on_with_the_history_of_leaders(harness: EmbeddedHarness) -> None:
    one, epoch = controller(harness)
    silent = LeaderChange(1, "t", 0, BrokerId(1), BrokerId(2), 3, "silent", 4, 9000)
    stopped = silent._replace(reason="it stops", noticed_after_ms=0)
    changes = [SetBrokerConfig("", {"a": "1"})]
    assert one.write(changes, controller_epoch=epoch, leader_changes=[silent])
    harness.execute("INSERT INTO leader_changes VALUES (NULL, 1, 't', 0, 1, 2, 3, 'it stops', 4)")
    assert one.write(changes, controller_epoch=epoch, leader_changes=[silent])
    assert one.leader_changes(10) == [silent, stopped, silent]


FORMER_BROKERS = """
CREATE TABLE brokers (
    node_id INTEGER PRIMARY KEY, epoch INTEGER, owner TEXT, rack TEXT, endpoints TEXT,
    boot TEXT, expires REAL, timeout_s REAL
)
"""


def test_a_file_whose_sessions_ended_by_time_is_opened(harness: EmbeddedHarness) -> None:
    one, epoch = controller(harness)
    assert one.write([CreateTopic("t", UUID(int=5), (PARTITION,), {})], controller_epoch=epoch)
    broker_epoch = one.load().image.brokers[1].epoch
    one.abandon()
    harness.execute("DROP TABLE brokers")
    harness.execute(FORMER_BROKERS)
    harness.execute("INSERT INTO brokers VALUES (1, 1, '', NULL, '', 'monday', 7.0, 9.0)")
    two, following = controller(harness)
    assert following > epoch
    image = two.load().image
    assert set(image.topics) == {"t"}
    assert image.brokers.keys() == {1}
    assert image.brokers[1].epoch > broker_epoch
    assert not image.brokers[1].fenced
    two.close()


def test_an_image_catches_up_by_changes_or_by_everything(harness: EmbeddedHarness) -> None:
    one, epoch = controller(harness)
    two = harness.open()
    start = two.load().image
    for number in range(30):
        assert one.write([CreateTopic(f"t{number}", uuid4(), (PARTITION,), {})], controller_epoch=epoch)
    middle = two.load(start)
    assert middle.topics == {f"t{number}" for number in range(30)}
    # Forget how it came about: the image must be the same.
    harness.execute("DELETE FROM changes")
    assert one.write([SetBrokerConfig("", {"a": "1"})], controller_epoch=epoch)
    everything = two.load(start)
    assert everything.image.topics == middle.image.topics
    assert everything.image.broker_config("") == {"a": "1"}
    harness.execute("DELETE FROM changes")
    gone = two.load(middle.image)
    assert gone.topics == set(middle.image.topics)
    assert gone.image.topics == middle.image.topics
    harness.close()


def test_changes_do_not_grow_for_ever(harness: EmbeddedHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.registry.embedded._CHANGES_KEPT", 100)
    one, epoch = controller(harness)
    for number in range(2100):
        assert one.write([SetBrokerConfig("", {"a": str(number)})], controller_epoch=epoch)
    assert harness.execute("SELECT count(*) FROM changes")[0][0] <= 1100
    harness.close()


def test_what_cannot_be_opened_is_said_in_one_line(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    directory.chmod(0o755)
    for path, words in (
        (
            tmp_path / "missing" / "registry.db",
            f"unable to open database file; make {tmp_path}/missing, or choose another",
        ),
        (directory, f"it is a directory; name the file in it, such as {directory}/registry.db"),
    ):
        with pytest.raises(UsageError, match=words) as raised:
            EmbeddedRegistry(path)
        assert not isinstance(raised.value, NotYet)
    assert directory.stat().st_mode & 0o777 == 0o755
    rubbish = tmp_path / "rubbish.db"
    rubbish.write_bytes(b"this is not a database, it is a poem" * 100)
    with pytest.raises(UsageError, match="cannot be used as the registry: file is not a database") as raised:
        EmbeddedRegistry(rubbish)
    assert not isinstance(raised.value, NotYet)


@contextmanager
def no_room(_with_room: bool) -> Iterator[None]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    yield


@pytest.mark.parametrize("trouble", ["locked", "full"])
def test_a_file_that_may_be_usable_later_is_told_as_such(
    harness: EmbeddedHarness, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("barnabas.registry.sqlite_file._BUSY_TIMEOUT_S", 0.01)
    harness.open()
    with closing(sqlite3.connect(harness.path, isolation_level=None)) as other:
        if trouble == "locked":
            other.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotYet, match=r"cannot be used as the registry: .*(locked|No space left)"):
            EmbeddedRegistry(harness.path, room=no_room if trouble == "full" else nullcontext)
    harness.close()


def test_a_disk_that_is_mounted_read_only_may_take_writes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = os.statvfs_result((*os.statvfs(tmp_path)[:8], os.ST_RDONLY, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: flags)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    refused = cannot_be_used(tmp_path / "registry.db", error)
    assert (type(refused), f"mount the disk of {tmp_path}" in str(refused)) == (NotYet, True)


@pytest.mark.parametrize("may_pass", [True, False])
def test_a_start_tells_what_may_pass_from_what_does_not(may_pass: bool) -> None:
    error = RegistryUnavailable("it refuses")
    error.may_pass = may_pass
    with pytest.raises(UsageError, match="the registry: it refuses") as raised, start_with_registry("the registry: "):
        raise error
    assert isinstance(raised.value, NotYet) == may_pass


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_DIRECTORY])
def test_a_file_that_is_not_opened_may_be_later_if_its_rights_are_in_order(tmp_path: Path, code: int) -> None:
    error = sqlite3.OperationalError("not opened")
    error.sqlite_errorcode = code
    assert may_pass(error, tmp_path / "registry.db")
    assert not may_pass(error, tmp_path / "missing" / "registry.db")


def test_a_newer_format_is_refused(harness: EmbeddedHarness) -> None:
    harness.open()
    harness.execute("UPDATE state SET format = 2")
    with pytest.raises(UsageError, match="registry format 2 is not the format 1"):
        harness.open()
    harness.close()


def test_a_failing_store_is_neither_yes_nor_no(harness: EmbeddedHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    one, epoch = controller(harness)
    monkeypatch.setattr("barnabas.registry.sqlite_file._BUSY_TIMEOUT_S", 0.01)
    two = harness.open()
    two.register_broker(BrokerRegistration(2, {UUID(int=2): "/data"}, ()))
    blocker = sqlite3.connect(harness.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryUnavailable, match="locked"):
        two.allocate_producer_ids()
    assert two.elect_controller() is None, "who has the role is read without the lock"
    blocker.execute("ROLLBACK")
    blocker.close()
    one.close()
    with pytest.raises(RegistryUnavailable):
        one.write([DeleteTopic("t", UUID(int=1))], controller_epoch=epoch)
    harness.close()


def test_a_full_disk_changes_nothing(harness: EmbeddedHarness) -> None:
    one, epoch = controller(harness)
    pages = harness.execute("PRAGMA page_count")[0][0]
    one._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    before = one.load().image
    many = [CreateTopic(f"t{number}", uuid4(), (PARTITION,) * 10, {}) for number in range(500)]
    with pytest.raises(RegistryUnavailable, match="full"):
        one.write(many, controller_epoch=epoch)
    assert one.load(before).image is before
    one._db.execute("PRAGMA max_page_count = 1000000")
    assert one.write(many, controller_epoch=epoch)
    harness.close()


WRITER = """
import sys, uuid
from uuid import UUID
from pathlib import Path
from barnabas.metadata.image import PartitionImage
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.registry import BrokerRegistration, CreateTopic
registry = EmbeddedRegistry(Path(sys.argv[1]))
registry.register_broker(BrokerRegistration(1, {UUID(int=1): "/data"}, ()))
epoch = registry.elect_controller()
for number in range(100_000):
    partition = PartitionImage(1, 0, (1,), (1,), 0)
    assert registry.write([CreateTopic(f"t{number}", uuid.uuid4(), (partition,), {})], controller_epoch=epoch)
    print(number, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = [writer.stdout.readline() for _ in range(50)]
            os.kill(writer.pid, signal.SIGKILL)
            acknowledged += writer.stdout.readlines()
        registry = EmbeddedRegistry(path)
        topics = registry.load().image.topics
        last = int(acknowledged[-1])
        assert {f"t{number}" for number in range(last + 1)} <= set(topics)
        registry.close()
        for file in tmp_path.iterdir():
            file.unlink()


def test_it_is_quick_enough_to_start_with(tmp_path: Path, stopwatch: Stopwatch) -> None:
    """Loose bounds: the figures are in the report, and a disk may be busy. This only catches another order of
    magnitude."""
    began = stopwatch()
    registry = EmbeddedRegistry(tmp_path / "registry.db")
    opened = stopwatch()
    registry.register_broker(BrokerRegistration(1, {UUID(int=1): "/data"}, ()))
    epoch = registry.elect_controller()
    assert epoch is not None
    image = registry.load().image
    started = stopwatch()
    topics = [CreateTopic(f"t{number}", uuid4(), (PARTITION,), {}) for number in range(100)]
    assert registry.write(topics, controller_epoch=epoch)
    registry.load(image)
    written = stopwatch()
    registry.close()
    assert opened - began < 10
    assert written - started < 10


# -- the secret of the cluster ----------------------------------------------------------------------------------------


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def test_a_file_without_its_name_is_lost_for_those_that_start(harness: EmbeddedHarness, tmp_path: Path) -> None:
    registry = harness.open()
    assert registry.loss() == ""
    moved = harness.path.rename(tmp_path / "moved.db")
    assert registry.loss() == f"{harness.path} was removed or replaced"
    harness.path.touch()
    assert registry.loss() == f"{harness.path} was removed or replaced"
    moved.rename(harness.path)
    assert registry.loss() == ""


def test_only_the_owner_reads_the_registry(harness: EmbeddedHarness, tmp_path: Path) -> None:
    former = os.umask(0o022)
    try:
        harness.open().register_broker(BrokerRegistration(1, {UUID(int=1): "/d"}, ()))
    finally:
        os.umask(former)
    assert set(modes(tmp_path)) == {
        *("registry.db", "registry.db-wal", "registry.db-shm", "registry.db-broker-1.lock"),
    }
    assert set(modes(tmp_path).values()) == {0o600}
    harness.close()


def test_an_older_file_is_made_private_and_gets_a_secret(harness: EmbeddedHarness, tmp_path: Path) -> None:
    registry = harness.open()
    for path in tmp_path.iterdir():
        path.chmod(0o664)
    harness.execute("DROP TABLE secrets")
    secret = harness.open().cluster_secret()
    assert set(modes(tmp_path).values()) == {0o600}
    assert len(secret) == 32
    assert registry.cluster_secret() == secret
    harness.close()


def test_an_older_file_gets_a_history_of_leaders(harness: EmbeddedHarness) -> None:
    one = harness.open()
    one._db.execute("DROP TABLE leader_changes")
    assert harness.open().leader_changes(1) == []


def test_an_older_file_gets_room_for_reassignments(harness: EmbeddedHarness) -> None:
    registry, epoch = controller(harness)
    assert registry.write([CreateTopic("t", UUID(int=1), (PARTITION,), {})], controller_epoch=epoch)
    harness.close()
    harness.execute("ALTER TABLE partitions DROP COLUMN unsettled")
    for _ in range(2):  # nothing is added twice
        registry, epoch = controller(harness)
        assert registry.load().image.topics["t"].partitions == (PARTITION,)
        registry.close()
    registry, epoch = controller(harness)
    changed = PARTITION._replace(partition_epoch=1, elr=(2,))
    assert registry.write([SetPartition("t", UUID(int=1), 0, changed, 0)], controller_epoch=epoch)
    assert harness.open().load().image.topics["t"].partitions == (changed,)
    harness.close()


def test_each_cluster_has_its_own_secret(tmp_path: Path) -> None:
    with closing(EmbeddedRegistry(tmp_path / "one")) as one, closing(EmbeddedRegistry(tmp_path / "two")) as two:
        assert one.cluster_secret() != two.cluster_secret()


def test_rights_that_cannot_be_taken_away_are_reported(
    harness: EmbeddedHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness.open().close()
    harness.path.chmod(0o644)

    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "chmod", refuse)
    assert len(harness.open().cluster_secret()) == 32
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{harness.path} can be read by others, and the secret of the cluster's brokers is in it: Operation not "
        "permitted; let the broker's user own the file, or restrict its directory"
    )
    harness.close()
