"""A ZooKeeper whose disk was put back from a copy: the cluster gives nothing out twice, and the way out works."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import barnabas
from barnabas.broker.startup.recovery import recover_registry
from barnabas.errors import RequestTimedOut, TopicAlreadyExists, UsageError
from barnabas.registry.embedded_store import EmbeddedStore
from barnabas.registry.migration import move_registry
from barnabas.testing import Broker, Cluster
from zookeeper_server import ZooKeeperServer, another_program, running_server

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    (tmp_path / "zookeeper").mkdir()
    yield from running_server(tmp_path / "zookeeper")


def test_a_start_refuses_it_and_all_is_there_after_the_recovery(server: ZooKeeperServer, tmp_path: Path) -> None:
    from barnabas.registry.zookeeper.session import ZooKeeperAccess
    from barnabas.registry.zookeeper.zookeeper_store import ZooKeeperStore

    connect, data = server.new_path(), tmp_path / "data"
    settings = {"zookeeper.connect": connect}
    with Broker(data_dir=data, settings=settings):
        pass
    server.kill()
    put_back = server.back_up()
    server.start()
    with Broker(data_dir=data, settings=settings) as broker:
        broker.create_topic("t", configs={"retention.ms": "-1"})
        broker.produce("t", b"kept")
    server.kill()
    put_back()
    server.start()
    with pytest.raises(
        UsageError, match=f"was put back from a copy.*barnabas cluster recover.*{data}.*migrate-registry"
    ):
        Broker(data_dir=data, settings=settings).start()
    assert (data / "t-0").is_dir(), "not put aside"
    with another_program(server.address) as program:
        program.delete("/" + connect.partition("/")[2], recursive=True)
    recover_registry(tmp_path / "registry.db", [str(data)])
    with (
        closing(EmbeddedStore(tmp_path / "registry.db")) as file,
        closing(ZooKeeperStore(ZooKeeperAccess(connect))) as store,
    ):
        assert not move_registry(file, store).differences
    with Broker(data_dir=data, settings=settings) as broker:
        assert [record.value for record in broker.records("t")] == [b"kept"]


def test_brokers_that_run_serve_on_and_change_nothing(server: ZooKeeperServer) -> None:
    with Cluster(processes=True, settings={"zookeeper.connect": server.new_path()}) as cluster:
        server.kill()
        put_back = server.back_up()
        server.start()
        cluster.wait_for(lambda: created(cluster, "t"), what="the connection to ZooKeeper")
        before = {node_id: cluster.broker(node_id).image.topics["t"] for node_id in cluster.node_ids}
        with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"before").result(timeout=60)
            server.kill()
            put_back()
            server.start()
            for number in range(100):
                producer.send("t", b"%d" % number).result(timeout=60)
        assert not created(cluster, "refused")
        assert before == {node_id: cluster.broker(node_id).image.topics["t"] for node_id in cluster.node_ids}
        assert len(cluster.records("t")) == 101


def created(cluster: Cluster, name: str) -> bool:
    """Tries to create a topic. Returns whether it is there."""
    with suppress(RequestTimedOut, TopicAlreadyExists):
        cluster.create_topic(name)
    return name in {view.name for view in cluster.admin.list_topics()}
