"""A cluster whose brokers seem to be on machines of their own: nobody sees the end of another's process."""

from collections.abc import Iterator

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.testing import Cluster
from zookeeper_server import ZooKeeperServer, another_program

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient

NEVER_MS = 300_000


@pytest.fixture(scope="module")
def connect(zookeeper: ZooKeeperServer) -> str:
    return zookeeper.new_path()


@pytest.fixture(scope="module")
def shared_cluster(connect: str) -> Iterator[Cluster]:
    settings = {"zookeeper.connect": connect, "broker.session.timeout.ms": NEVER_MS}
    with Cluster(processes=True, several_machines=True, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    shared_cluster.reset()
    return shared_cluster


@pytest.fixture
def tree(connect: str) -> Iterator[KazooClient]:
    """Another program that reads below the cluster's path."""
    with another_program(connect) as client:
        yield client


def write(cluster: Cluster, value: bytes) -> None:
    quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50}
    with barnabas.Producer(quick, bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", value).result(timeout=60)


def test_a_dead_process_is_noticed_before_its_session_ends(cluster: Cluster, tree: KazooClient) -> None:
    victim = cluster.controller % 3 + 1
    cluster.create_topic("t", assignments={0: [victim, *(each for each in cluster.node_ids if each != victim)]})
    write(cluster, b"one")
    cluster.kill(victim)
    assert cluster.leader("t") != victim
    assert tree.exists(f"/brokers/ids/{victim}") is not None, "ZooKeeper has not ended its session"
    write(cluster, b"two")
    cluster.start(victim)
    cluster.wait_in_sync()
    assert [record.value for record in cluster.records("t")] == [b"one", b"two"]


def test_the_role_of_a_dead_controller_moves_when_its_session_ends(cluster: Cluster, tree: KazooClient) -> None:
    controller = cluster.controller
    session = tree.exists("/controller").ephemeralOwner
    cluster.create_topic("t", assignments={0: [controller, *(each for each in cluster.node_ids if each != controller)]})
    cluster.kill(controller)
    assert cluster.controller != controller
    assert tree.exists("/controller").ephemeralOwner != session
    assert cluster.leader("t") != controller
    write(cluster, b"one")
    cluster.start(controller)
    cluster.wait_in_sync()


def test_a_dead_controller_that_is_started_again_is_or_has_a_successor_at_once(
    cluster: Cluster, tree: KazooClient
) -> None:
    """Its new registration tells all that the role is free: usually it takes that itself, as it knows first."""
    controller, epoch = cluster.controller, int(tree.get("/controller_epoch")[0])
    session = tree.exists("/controller").ephemeralOwner
    cluster.create_topic("t")
    cluster.kill(controller)
    cluster.start(controller)
    assert cluster.controller in cluster.node_ids
    assert int(tree.get("/controller_epoch")[0]) == epoch + 1
    assert tree.exists("/controller").ephemeralOwner != session
    write(cluster, b"one")
    cluster.wait_in_sync()


def test_a_file_is_of_one_machine() -> None:
    with pytest.raises(UsageError, match="cannot share a file"):
        Cluster(several_machines=True)
