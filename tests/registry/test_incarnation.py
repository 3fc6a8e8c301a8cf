"""A copy of a registry's file is another registry: nothing of the original belongs to it."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.config.endpoints import Endpoint
from barnabas.registry import embedded
from barnabas.registry.broker_locks import BrokerLocks
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.registry.incarnation import settle_incarnation
from barnabas.registry.processes import begin_process, end_process
from barnabas.registry.registry import BrokerRegistration
from barnabas.registry.sqlite_file import SqliteFile
from barnabas.types import BrokerId

INTERNAL = Endpoint("INTERNAL", "SASL_PLAINTEXT", "127.0.0.1", 9094)
Open = Callable[..., EmbeddedRegistry]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens registries, which are closed in the end."""
    with ExitStack() as stack:

        def open_(path: Path, node_id: int | None = None, boot: str | None = None) -> EmbeddedRegistry:
            return stack.enter_context(closing(EmbeddedRegistry(path, node_id=node_id, boot=boot)))

        yield open_


@pytest.fixture
def processes() -> Iterator[list[str]]:
    """The processes of two brokers."""
    found = [begin_process(), begin_process()]
    yield found
    for process in found:
        end_process(process)


def register(registry: EmbeddedRegistry, node_id: int, process: str) -> int | None:
    directories = {UUID(int=node_id): "/data"}
    return registry.register_broker(
        BrokerRegistration(node_id, directories, (), peer_endpoint=INTERNAL, process=process)
    )


def copied(path: Path, name: str) -> Path:
    """Copies a registry with all that lies beside it, as `cp -a` does."""
    shutil.copytree(path.parent, path.parent.with_name(name))
    return path.parent.with_name(name) / path.name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "original").mkdir()
    return tmp_path / "original" / "registry.db"


def test_nobody_of_the_original_belongs_to_a_copy(opened: Open, processes: list[str], path: Path) -> None:
    one = opened(path)
    for node_id, process in enumerate(processes, 1):
        assert register(opened(path), node_id, process) is not None
    before = one.load().image
    copy = opened(copied(path, "copy"))
    assert copy.incarnation() != one.incarnation()
    there = copy.load().image.brokers.values()
    assert {(broker.process, broker.peer_endpoint) for broker in there} == {("", None)}
    assert register(copy, 2, begin_process()) is not None, "the broker in the copy starts on its own"
    assert copy.elect_controller() is not None
    assert copy.load().image.brokers[BrokerId(1)].peer_endpoint is None
    assert one.load(before).image is before
    assert opened(path).incarnation() == one.incarnation()
    assert opened(copied(path, "another")).incarnation() not in {one.incarnation(), copy.incarnation()}


def test_a_broker_that_runs_keeps_its_node_id_from_copies_of_its_directories(
    opened: Open, processes: list[str], path: Path
) -> None:
    assert register(opened(path), 1, processes[0]) is not None
    assert register(opened(path), 1, begin_process()) is None


def test_a_file_that_is_renamed_stays_what_it_is(opened: Open, path: Path, tmp_path: Path) -> None:
    first = opened(path).incarnation()
    path.parent.rename(tmp_path / "renamed")
    assert opened(tmp_path / "renamed" / path.name).incarnation() == first


def test_a_machine_that_was_started_anew_may_be_a_clone(opened: Open, processes: list[str], path: Path) -> None:
    registry = opened(path, 1, "monday")
    assert register(registry, 1, processes[0]) is not None
    container = opened(path, 2, "tuesday")
    assert container.incarnation() == registry.incarnation(), "a broker runs"
    for each in (registry, container):
        each.abandon()
    assert opened(path, 2, "tuesday").incarnation() != registry.incarnation()


def test_brokers_of_the_release_before_go_on_with_a_file_that_is_upgraded(
    opened: Open, processes: list[str], path: Path
) -> None:
    registry = opened(path)
    for node_id, process in enumerate(processes, 1):
        assert register(opened(path), node_id, process) is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE state SET incarnation = ''")
        db.execute("DELETE FROM locks")
    upgraded = opened(path)
    assert [each.process for each in upgraded.load().image.brokers.values()] == processes
    assert upgraded.dead_brokers() == []
    for each in (registry, upgraded):
        each.abandon()
    assert opened(path, boot="tuesday").incarnation() == upgraded.incarnation(), "they may run in another container"


def test_the_founder_holds_its_lock_while_it_settles_the_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def settle(db: SqliteFile, boot: str, locks: BrokerLocks) -> str:
        held.append(locks.holds(1))
        return settle_incarnation(db, boot, locks)

    monkeypatch.setattr(embedded, "settle_incarnation", settle)
    EmbeddedRegistry(tmp_path / "registry.db", node_id=1).close()
    assert held == [True]
