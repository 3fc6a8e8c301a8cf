"""A cluster whose registry is in ZooKeeper: what becomes of it when ZooKeeper fails, or others write there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import BarnabasError, RequestTimedOut, TopicAlreadyExists
from barnabas.testing import Cluster
from zookeeper_server import ZooKeeperServer, another_program, running_server

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    yield from running_server(tmp_path_factory.mktemp("zookeeper"))


@pytest.fixture(scope="module")
def zookeeper_cluster(server: ZooKeeperServer) -> Iterator[Cluster]:
    with Cluster(processes=True, settings={"zookeeper.connect": server.new_path()}) as cluster:
        yield cluster


@pytest.fixture
def cluster(zookeeper_cluster: Cluster) -> Cluster:
    zookeeper_cluster.reset()
    return zookeeper_cluster


@pytest.fixture
def tree(cluster: Cluster, server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Another program that writes below the cluster's path."""
    with another_program(f"{server.address}/test-0") as client:
        yield client


def write(cluster: Cluster, *values: bytes) -> None:
    quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50}
    with barnabas.Producer(quick, bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value).result(timeout=60)


def test_without_zookeeper_records_are_served_and_then_all_goes_on(cluster: Cluster, server: ZooKeeperServer) -> None:
    cluster.create_topic("t")
    with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"before").result(timeout=60)
        server.kill()
        for number in range(100):
            producer.send("t", b"%d" % number).result(timeout=60)
    with pytest.raises(BarnabasError), barnabas.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(barnabas.NewTopic("refused", 1), timeout=3)
    server.start()

    def is_created() -> bool:
        with contextlib.suppress(RequestTimedOut, TopicAlreadyExists):  # until the controller has its connection again
            cluster.create_topic("again")
        return "again" in {view.name for view in cluster.admin.list_topics()}

    cluster.wait_for(is_created, what="the controller's connection")
    write(cluster, b"after")
    assert len(cluster.records("t")) == 102
    assert len(cluster.admin.describe_cluster().brokers) == 3


def test_a_broker_that_dies_without_zookeeper_is_replaced_when_that_is_back(
    cluster: Cluster, server: ZooKeeperServer
) -> None:
    cluster.create_topic("t")
    leader = cluster.leader("t")
    server.kill()
    cluster.kill(leader)
    server.start()
    assert cluster.leader("t") != leader
    write(cluster, b"one")
    cluster.start(leader)
    cluster.wait_in_sync()
    assert [record.value for record in cluster.records("t")] == [b"one"]


def test_a_deleted_controller_is_elected_again(cluster: Cluster, tree: KazooClient) -> None:
    epoch = int(tree.get("/controller_epoch")[0])
    tree.delete("/controller")
    cluster.wait_for(lambda: tree.exists("/controller") is not None, what="another election")
    assert int(tree.get("/controller_epoch")[0]) == epoch + 1
    cluster.create_topic("t")
    write(cluster, b"one")


def test_the_role_of_a_controller_that_hangs_moves(cluster: Cluster) -> None:
    controller = cluster.controller
    leader, other = (node_id for node_id in cluster.node_ids if node_id != controller)
    cluster.create_topic("t", assignments={0: [leader, other, controller]})
    cluster.pause(controller)
    write(cluster, b"one")
    assert cluster.controller != controller
    cluster.create_topic("u")
    cluster.resume(controller)
    cluster.wait_in_sync()
    assert cluster.controller != controller


@pytest.mark.parametrize("whose", ["the controller's", "another's"])
def test_a_broker_whose_node_is_deleted_makes_it_again(cluster: Cluster, tree: KazooClient, whose: str) -> None:
    cluster.create_topic("t")
    controller = cluster.controller
    node_id = controller if whose == "the controller's" else controller % 3 + 1
    path = f"/brokers/ids/{node_id}"
    tree.delete(path)
    cluster.wait_for(lambda: tree.exists(path) is not None, what="the node of the session")
    cluster.wait_for(lambda: node_id in cluster.admin.describe_cluster().brokers, what="the broker among the live ones")
    write(cluster, b"one")
    cluster.wait_in_sync()


def paths(tree: KazooClient, below: str) -> set[str]:
    """Returns a node and all below it."""
    return {below}.union(*(paths(tree, f"{below}/{name}") for name in tree.get_children(below)))


@pytest.mark.parametrize("path", ["/brokers/ids", "/brokers", "/config/topics", "/cluster", "/barnabas/brokers"])
def test_what_is_deleted_under_running_brokers_is_made_again(cluster: Cluster, tree: KazooClient, path: str) -> None:
    cluster.create_topic("t")
    write(cluster, b"one")
    before = paths(tree, path)
    with contextlib.suppress(NotEmptyError):  # brokers are faster
        tree.delete(path, recursive=True)
    cluster.wait_for(lambda: tree.exists(path) is not None and paths(tree, path) >= before, what="the nodes")
    cluster.wait_for(lambda: len(cluster.admin.describe_cluster().brokers) == 3, what="the brokers as live ones")
    leader = cluster.leader("t")
    cluster.kill(leader)
    cluster.start(leader)
    cluster.wait_in_sync()
    write(cluster, b"two")
    assert [record.value for record in cluster.records("t")] == [b"one", b"two"]


def test_a_cluster_that_keeps_others_from_writing(server: ZooKeeperServer, tmp_path: Path) -> None:
    connect = server.new_path()
    settings = {"zookeeper.connect": connect, "zookeeper.digest": "brokers:secret", "zookeeper.set.acl": "true"}
    other = KazooClient(connect)
    with barnabas.testing.Broker(data_dir=tmp_path, settings=settings) as broker:
        other.start()
        broker.create_topic("t")
        with pytest.raises(NoAuthError):
            other.create("/admin/delete_topics/t")
        broker.restart()
        broker.create_topic("u")
        assert set(other.get_children("/brokers/topics")) >= {"t", "u"}
    other.stop()
    other.close()


def test_a_cluster_that_starts_again_finds_its_topics(server: ZooKeeperServer, tmp_path: Path) -> None:
    settings = {"zookeeper.connect": server.new_path()}
    with barnabas.testing.Broker(data_dir=tmp_path, settings=settings) as broker:
        broker.create_topic("t", configs={"retention.ms": "-1"})
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"one").result(timeout=60)
        broker.restart()
        assert [record.value for record in broker.records("t")] == [b"one"]
        broker.kill()
        broker.start()
        assert [record.value for record in broker.records("t")] == [b"one"]
