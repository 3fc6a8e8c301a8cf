"""Data directories of a cluster that are not what its brokers had: not mounted for a start, mounted again, put back
from an old copy. Nobody leads with less than all that was acknowledged."""

import base64
import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import barnabas
from barnabas.broker import server
from barnabas.broker.startup.directory_age import DirectoryDoubts
from barnabas.controller.controller import Controller
from barnabas.errors import NotYet, UsageError
from barnabas.log.directories import data_directory
from barnabas.log.directories.checkpoints import read_properties
from barnabas.registry.embedded import EmbeddedRegistry
from barnabas.testing import Broker, Cluster
from barnabas.types import BrokerId
from broker.served import Served
from broker.startup.test_startup_errors import serve

RECORDS = 20


def produce(cluster: Cluster, count: int = RECORDS, topic: str = "t") -> None:
    with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for sent in [producer.send(topic, b"%d" % number) for number in range(count)]:
            sent.result(60)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        cluster.create_topic("t", assignments={0: [1, 2, 3]})
        produce(cluster)
        yield cluster


def unmount(directory: Path) -> None:
    directory.rename(directory.with_name(f"{directory.name}.away"))
    directory.mkdir()


def mount(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.with_name(f"{directory.name}.away").rename(directory)


def put_back(copy: Path, directory: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)


def directory_of(cluster: Cluster, node_id: int) -> Path:
    return cluster.data_dir / f"broker-{node_id}"


def test_brokers_that_all_start_without_their_mounts_give_nothing_up(cluster: Cluster) -> None:
    for node_id in cluster.node_ids:
        cluster.pause(node_id)  # nobody notices how the others end
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
        unmount(directory_of(cluster, node_id))
    for node_id in cluster.node_ids:
        with pytest.raises(NotYet, match=r"broker-\d .*is missing.*waits for broker \d or \d"):
            cluster.start(node_id)
        assert list(directory_of(cluster, node_id).iterdir()) == []
    for node_id in cluster.node_ids:
        mount(directory_of(cluster, node_id))
    for node_id in cluster.node_ids:
        cluster.start(node_id)
    cluster.wait_in_sync()
    assert len(cluster.records("t")) == RECORDS


def test_brokers_that_were_stopped_in_order_and_start_without_their_mounts_give_nothing_up(cluster: Cluster) -> None:
    for node_id in cluster.node_ids:
        cluster.stop(node_id)
        unmount(directory_of(cluster, node_id))
    cluster.broker(1).start()  # the first that was stopped is not eligible: the others decide anyway
    for node_id in (2, 3):
        with pytest.raises(NotYet, match=r"broker-\d .*is missing.*waits for broker \d"):
            cluster.start(node_id)
    cluster.stop(1)
    for node_id in (3, 2, 1):
        mount(directory_of(cluster, node_id))
        cluster.start(node_id)
    cluster.wait_in_sync()
    assert len(cluster.records("t")) == RECORDS


def test_where_a_disk_of_all_brokers_is_dead_they_say_how_nothing_is_lost() -> None:
    """Each partition has a replica on the other disk, but they wait for each other."""
    with Cluster(3, log_dirs=2) as cluster:
        cluster.create_topic("t", assignments={number: [1, 2, 3] for number in range(4)})
        produce(cluster, 2 * RECORDS)
        for node_id in cluster.node_ids:
            cluster.pause(node_id)
        dead = {node_id: directory_of(cluster, node_id) / "log-1" for node_id in cluster.node_ids}
        for node_id, disk in dead.items():
            cluster.kill(node_id)
            assert {path.name for path in disk.glob("t-*")} in ({"t-0", "t-1", "t-2"}, {"t-3"})
            shutil.rmtree(disk)
        for node_id in cluster.node_ids:
            with pytest.raises(NotYet, match=r"If they wait for this one as well.* --lost-dir=\S{22}: nothing is lost"):
                cluster.start(node_id)
        for node_id, disk in dead.items():
            cluster.start(node_id, lost_dirs=disk)
        cluster.wait_in_sync()
        assert len(cluster.records("t")) == 2 * RECORDS


def test_a_disk_that_was_away_never_leads(cluster: Cluster) -> None:
    cluster.kill(1)
    unmount(directory_of(cluster, 1))
    produce(cluster)
    cluster.start(1)
    cluster.wait_in_sync()
    produce(cluster)
    for node_id in (2, 3, 1):
        cluster.kill(node_id)
    mount(directory_of(cluster, 1))
    with contextlib.suppress(NotYet):  # the others are not there
        cluster.broker(1).start()
    for node_id in (2, 3):
        cluster.start(node_id)
    if not cluster.broker(1).is_running:
        cluster.start(1)
    cluster.wait_in_sync()
    assert len(cluster.records("t")) == 3 * RECORDS
    assert len({tuple(log) for log in cluster.logs("t").values()}) == 1


def test_an_old_copy_of_a_stopped_broker_never_leads(cluster: Cluster, tmp_path: Path) -> None:
    cluster.stop(1)
    shutil.copytree(directory_of(cluster, 1), tmp_path / "copy")
    cluster.start(1)
    cluster.wait_in_sync()
    produce(cluster)
    for node_id in (2, 3, 1):
        cluster.stop(node_id)
    put_back(tmp_path / "copy", directory_of(cluster, 1))
    with contextlib.suppress(NotYet):
        cluster.broker(1).start()
    for node_id in (2, 3):
        cluster.start(node_id)
    if not cluster.broker(1).is_running:
        cluster.start(1)
    cluster.wait_in_sync()
    assert len(cluster.records("t")) == 2 * RECORDS


# --- one broker with two directories ---------------------------------------------------------------------------------

PARTITIONS = 4


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """The directories of a broker that was stopped twice; each has two partitions of t with two records each. Beside
    each is a copy of what it was after the first stop, with one record."""
    directories = tmp_path / "first", tmp_path / "second"
    for count in (1, 2):
        with on(*directories) as broker:
            if count == 1:
                broker.create_topic("t", partitions=PARTITIONS)
            for partition in range(PARTITIONS):
                broker.produce("t", b"%d" % count, partition=partition)
        if count == 1:
            for directory in directories:
                shutil.copytree(directory, copy_of(directory))
    return directories


def copy_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.copy")


def on(*directories: Path, **options: object) -> Broker:
    return Broker(data_dir=",".join(map(str, directories)), **options)  # type: ignore[arg-type]


def logs_in(directory: Path) -> list[int]:
    return sorted(int(path.name[2:]) for path in directory.glob("t-[0-9]"))


def directory_id(directory: Path) -> str:
    return read_properties(f"{directory}/meta.properties")["directory.id"]


def test_an_old_copy_is_served_only_if_the_operator_says_so(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    put_back(copy_of(second), second)
    code, line = serve(f"{first},{second}")
    option = f"--accept-old-dir={directory_id(second)}"
    assert (code, f"{second} (directory.id " in line, option in line) == (2, True, True), line
    served = Served(tmp_path, f"{first},{second}", options=[option])
    served.stop()
    assert "records may be missing that were acknowledged" in served.errors.read_text()
    with on(first, second) as broker:
        old = logs_in(second)
        assert [broker.end_offsets("t")[number] for number in range(PARTITIONS)] == [
            1 if number in old else 2 for number in range(PARTITIONS)
        ]
        partitions = broker.image.topics["t"].partitions
        assert [number for number, each in enumerate(partitions) if each.leader_epoch > 0] == old


def test_a_whole_copy_with_its_registry_is_served(two: tuple[Path, Path]) -> None:
    for directory in two:
        put_back(copy_of(directory), directory)
    with on(*two) as broker:
        assert broker.end_offsets("t") == [1] * PARTITIONS


def test_a_registry_that_was_put_back_is_refused(two: tuple[Path, Path]) -> None:
    first, second = two
    shutil.copy(copy_of(first) / "registry.db", first / "registry.db")
    for directory in two:
        (directory / "cluster-metadata-copy").unlink()  # which tells it as well
    code, line = serve(f"{first},{second}")
    assert code == 2
    assert "is newer than the registry" in line
    assert "barnabas cluster recover" in line
    assert "restore it from a copy" not in line


def test_a_log_that_was_made_anew_elsewhere_is_kept_beside_it(two: tuple[Path, Path], tmp_path: Path) -> None:
    """A disk that was given up comes back: its partitions have begun anew in the other directory."""
    first, second = two
    gone = logs_in(second)
    second.rename(tmp_path / "away")
    served = Served(tmp_path, str(first), options=[f"--lost-dir={directory_id(tmp_path / 'away')}"])
    served.stop()
    with on(first) as broker:
        for number in gone:
            broker.produce("t", b"anew", partition=number)
    (tmp_path / "away").rename(second)
    with on(first, second) as broker:
        assert [broker.records("t", number)[-1].value for number in gone] == [b"anew"] * len(gone)
    assert len(list(second.glob("t-*-stray"))) == len(gone)
    assert logs_in(second) == []


@pytest.mark.parametrize("end", ["before", "after"])
@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_a_broker_may_be_killed_at_every_step_of_its_registration(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, where: int, end: str
) -> None:
    """Each write of a mark, and the registration between them, may be the last thing that a start does."""

    class Killed(BaseException):
        pass

    steps = 0
    write, register = data_directory.write_registration_mark, EmbeddedRegistry.register_broker

    def step(do: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == where + 1 and end == "before":
            raise Killed
        result = do(*arguments, **named)
        if steps == where + 1 and end == "after":
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(data_directory, "write_registration_mark", partial(step, write))
        patch.setattr(EmbeddedRegistry, "register_broker", lambda *args, **named: step(register, *args, **named))
        patch.setattr(EmbeddedRegistry, "end_session", lambda self: None)
        with pytest.raises(Killed):
            on(*two).start()
    for _ in range(2):
        with on(*two) as broker:
            assert broker.end_offsets("t") == [2] * PARTITIONS


def test_a_kill_before_the_new_leader_epochs_of_an_accepted_directory_leaves_it_old(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    second = two[1]
    put_back(second.with_name("second.copy"), second)
    accepted = [UUID(bytes=base64.urlsafe_b64decode(f"{directory_id(second)}=="))]
    with monkeypatch.context() as patch:
        patch.setattr(Controller, "renew_leadership", kill)
        patch.setattr(EmbeddedRegistry, "end_session", lambda self: None)
        patch.setattr(server, "DirectoryDoubts", lambda *args, **_: DirectoryDoubts(*args, accepted=accepted))
        with pytest.raises(Killed):
            on(*two).start()
    with pytest.raises(UsageError, match="--accept-old-dir"):
        on(*two).start()


def test_the_mark_of_a_clean_shutdown_has_the_broker_epoch(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        epoch = broker.image.brokers[BrokerId(1)].epoch
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": epoch}
