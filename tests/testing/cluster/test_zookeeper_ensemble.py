"""A cluster whose registry is in an ensemble of three ZooKeepers, of which some fail while a producer writes."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import RequestTimedOut, TopicAlreadyExists
from barnabas.testing import Cluster
from small_disks import fill, make_room, small_disks
from zookeeper_server import ZooKeeperEnsemble, another_program, end_session, running_ensemble

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient


@pytest.fixture(scope="module")
def shared_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A disk for each member of the ensemble, by its number; None where none can be mounted."""
    with small_disks(tmp_path_factory.mktemp("disks"), ("1", "2", "3"), megabytes=32) as disks:
        yield disks


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, shared_disks: Path | None) -> Iterator[ZooKeeperEnsemble]:
    yield from running_ensemble(shared_disks or tmp_path_factory.mktemp("ensemble"))


@pytest.fixture
def ensemble(running: ZooKeeperEnsemble) -> ZooKeeperEnsemble:
    running.start()
    return running


@pytest.fixture
def disks(ensemble: ZooKeeperEnsemble, shared_disks: Path | None) -> Iterator[Path]:
    """Those of the ensemble. There is room on all of them at the end."""
    if shared_disks is None:
        pytest.skip("a disk of a test needs `unshare` and the permission to mount")
    yield shared_disks
    ensemble.kill()
    for number in ensemble.servers:
        make_room(shared_disks / f"{number}")


@pytest.fixture(scope="module")
def connect(running: ZooKeeperEnsemble) -> str:
    return running.new_path()


@pytest.fixture(scope="module")
def shared_cluster(connect: str) -> Iterator[Cluster]:
    with Cluster(processes=True, settings={"zookeeper.connect": connect}) as cluster:
        yield cluster


@pytest.fixture
def cluster(ensemble: ZooKeeperEnsemble, shared_cluster: Cluster) -> Cluster:
    registry_is_back(shared_cluster)
    shared_cluster.reset()
    shared_cluster.create_topic("t")
    return shared_cluster


@pytest.fixture
def tree(ensemble: ZooKeeperEnsemble, connect: str) -> Iterator[KazooClient]:
    """Another program that reads below the cluster's path."""
    with another_program(connect) as client:
        yield client


class Writing:
    """An idempotent producer with acks=all that sends one record after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._acknowledged = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50}
        try:
            with barnabas.Producer(quick, bootstrap_servers=self._cluster.bootstrap_servers) as producer:
                while not self._stopping.is_set():
                    producer.send("t", b"%d" % self._acknowledged).result(timeout=60)
                    self._acknowledged += 1
        except BaseException as error:
            self._error = error

    def __enter__(self) -> "Writing":
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Waits for further acknowledgements."""
        wanted = self._acknowledged + 100
        self._cluster.wait_for(lambda: self._error or self._acknowledged >= wanted, 60, "100 acknowledgements")
        assert self._error is None

    def check(self) -> None:
        """Checks that each record is there once, in order. Called when all has been sent."""
        assert self._error is None
        found = [record.value for record in self._cluster.records("t")]
        assert found == [b"%d" % number for number in range(self._acknowledged)]


def controller_epoch(cluster: Cluster) -> int:
    return max(cluster.broker(node_id).image.controller_epoch for node_id in cluster.node_ids)


def registry_is_back(cluster: Cluster) -> None:
    """Waits until metadata can be changed."""

    def is_back() -> bool:
        with contextlib.suppress(RequestTimedOut, TopicAlreadyExists):
            cluster.create_topic("registry-is-back")
        return "registry-is-back" in {view.name for view in cluster.admin.list_topics()}

    cluster.wait_for(is_back, what="the connection to ZooKeeper")


def nothing_changes(cluster: Cluster, writing: Writing) -> None:
    """Checks that records are acknowledged while topics cannot be created."""
    with pytest.raises(RequestTimedOut) as refused:
        cluster.create_topic("refused")
    assert refused.value.retriable
    writing.goes_on()


def test_zookeepers_leader_dies(cluster: Cluster, ensemble: ZooKeeperEnsemble) -> None:
    epoch = controller_epoch(cluster)
    with Writing(cluster) as writing:
        ensemble.kill(ensemble.leader)
        writing.goes_on()
        registry_is_back(cluster)
        writing.goes_on()
    writing.check()
    assert controller_epoch(cluster) <= epoch + 1
    assert len(cluster.admin.describe_cluster().brokers) == 3


def test_zookeepers_leader_stands_still(cluster: Cluster, ensemble: ZooKeeperEnsemble) -> None:
    epoch, leader = controller_epoch(cluster), ensemble.leader
    with Writing(cluster) as writing:
        ensemble.servers[leader].pause()
        try:
            writing.goes_on()
            registry_is_back(cluster)
        finally:
            ensemble.servers[leader].resume()
        writing.goes_on()
    writing.check()
    assert controller_epoch(cluster) <= epoch + 1


@pytest.mark.parametrize("seconds", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_without_a_quorum_records_go_on_and_then_all_does(
    cluster: Cluster, ensemble: ZooKeeperEnsemble, seconds: int
) -> None:
    epoch = controller_epoch(cluster)
    with Writing(cluster) as writing:
        ensemble.kill(1, 3)
        until = time.monotonic() + seconds
        nothing_changes(cluster, writing)
        while time.monotonic() < until:
            nothing_changes(cluster, writing)
        ensemble.start()
        registry_is_back(cluster)
        writing.goes_on()
    writing.check()
    assert controller_epoch(cluster) <= epoch + 1
    assert len(cluster.admin.describe_cluster().brokers) == 3
    cluster.wait_in_sync()


def test_zookeepers_leader_and_the_controller_die(cluster: Cluster, ensemble: ZooKeeperEnsemble) -> None:
    epoch, controller = controller_epoch(cluster), cluster.controller
    with Writing(cluster) as writing:
        ensemble.kill(ensemble.leader)
        cluster.kill(controller)
        assert cluster.controller != controller
        writing.goes_on()
        cluster.start(controller)
        registry_is_back(cluster)
        writing.goes_on()
    writing.check()
    assert controller_epoch(cluster) == epoch + 1
    cluster.wait_in_sync()


def fill_up(tree: KazooClient, *disks: Path) -> None:
    """Takes all room, and has ZooKeeper write more than the rest of a page."""
    for disk in disks:
        fill(disk)
    tree.create_async("/more-than-a-page-", bytes(100_000), sequence=True)


def test_the_disk_of_zookeepers_leader_is_full(
    cluster: Cluster, ensemble: ZooKeeperEnsemble, tree: KazooClient, disks: Path
) -> None:
    epoch, leader = controller_epoch(cluster), ensemble.leader
    with Writing(cluster) as writing:
        fill_up(tree, disks / f"{leader}")
        cluster.wait_for(lambda: ensemble.leader != leader, what="another leader")
        registry_is_back(cluster)
        writing.goes_on()
    writing.check()
    assert controller_epoch(cluster) <= epoch + 1


def test_zookeepers_disks_are_full(
    cluster: Cluster, ensemble: ZooKeeperEnsemble, tree: KazooClient, disks: Path
) -> None:
    epoch = controller_epoch(cluster)
    with Writing(cluster) as writing:
        fill_up(tree, *(disks / f"{number}" for number in ensemble.servers))
        cluster.wait_for(lambda: not any(server.mode() for server in ensemble.servers.values()), what="the full disks")
        nothing_changes(cluster, writing)
        ensemble.kill()
        for number in ensemble.servers:
            make_room(disks / f"{number}")
        ensemble.start()
        registry_is_back(cluster)
        writing.goes_on()
    writing.check()
    assert controller_epoch(cluster) <= epoch + 1
    assert len(cluster.admin.describe_cluster().brokers) == 3
    cluster.wait_in_sync()


@pytest.mark.parametrize("whose", ["the controller's", "another's"])
def test_a_session_that_zookeeper_ends_is_made_again(
    cluster: Cluster, ensemble: ZooKeeperEnsemble, tree: KazooClient, whose: str
) -> None:
    epoch, controller = controller_epoch(cluster), cluster.controller
    node_id = controller if whose == "the controller's" else controller % 3 + 1
    registration = cluster.broker(node_id).image.brokers[node_id].epoch
    path = f"/brokers/ids/{node_id}"
    owner = tree.exists(path).ephemeralOwner

    def has_new_session() -> bool:
        found = tree.exists(path)
        return found is not None and found.ephemeralOwner != owner

    with Writing(cluster) as writing:
        end_session(ensemble.address, owner)
        cluster.wait_for(has_new_session, what="a new session")
        registry_is_back(cluster)
        cluster.wait_for(lambda: node_id in cluster.admin.describe_cluster().brokers, what="the broker as a live one")
        writing.goes_on()
    writing.check()
    assert cluster.broker(node_id).image.brokers[node_id].epoch == registration, "the same registration"
    elections = 1 if whose == "the controller's" else 0
    assert controller_epoch(cluster) == int(tree.get("/controller_epoch")[0]) == epoch + elections
    cluster.wait_in_sync()
