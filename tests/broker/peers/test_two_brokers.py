"""Two brokers of one cluster over TCP: authentication, introduction, forwarded requests, wrong secrets, restarts."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.peers.peer_connections import PeerAddress, PeerConnections
from barnabas.errors import BrokerNotAvailable, ConnectionLost, SaslAuthenticationFailed
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.testing import Broker
from broker.peers.conftest import QUICK, cluster_secret, member, member_of, run_on
from broker.wire import Wire, on_loop, server_of

REQUEST = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000
)


class Cluster:
    """Brokers with one registry. The first one is the controller."""

    def __init__(self, directory: Path) -> None:
        self.one = member(directory, 1).start()
        self.two = member(directory, 2).start()
        run_on(self.two, _joined(self.two))

    def send(self, broker: Broker, to: int) -> Any:
        async def send() -> Any:
            return await member_of(broker).peers.send(to, ListGroupsRequest())

        return run_on(broker, send())

    def close(self) -> None:
        self.two.close()
        self.one.close()


async def _joined(broker: Broker) -> None:
    await member_of(broker).joined()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_brokers_reach_each_other(cluster: Cluster) -> None:
    assert server_of(cluster.one).cluster_id == server_of(cluster.two).cluster_id
    assert cluster.send(cluster.one, 2).error_code == 0
    assert cluster.send(cluster.two, 1).error_code == 0


def test_the_controller_creates_a_topic_for_a_client_of_the_other_broker(cluster: Cluster) -> None:
    with Wire(cluster.two) as client:
        answer = client.ask(REQUEST, 7)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0)]
        assert "t" in on_loop(cluster.two, lambda: server_of(cluster.two).image.topics)
        again = client.ask(REQUEST, 7)
    assert [topic.error_code for topic in again.topics] == [36]


def test_a_broker_that_restarts_is_reached_again(cluster: Cluster) -> None:
    assert cluster.send(cluster.one, 2).error_code == 0
    cluster.two.stop()
    with pytest.raises((ConnectionLost, BrokerNotAvailable)):
        cluster.send(cluster.one, 2)
    cluster.two.start()
    run_on(cluster.two, _joined(cluster.two))
    assert cluster.send(cluster.one, 2).error_code == 0


def test_a_broker_of_another_cluster_is_not_let_in(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    with member(tmp_path / "other", 3) as other:
        address, secret = PeerAddress(member_of(cluster.one).endpoint, 1), cluster_secret(other)

        async def send() -> None:
            identity = member_of(other)._identity
            peers = PeerConnections(lambda node_id: address, identity, secret, server_of(other).failures, QUICK)
            try:
                for _ in range(3):
                    with pytest.raises(SaslAuthenticationFailed):
                        await peers.send(1, ListGroupsRequest())
            finally:
                peers.close()

        run_on(other, send())
        on_loop(cluster.one, lambda: None)
    lines = [record.getMessage() for record in caplog.records if "wrong credentials" in record.getMessage()]
    assert sorted(line.split(" ")[0] for line in lines) == ["broker", "the"], "one line on each side"


def test_a_broker_of_a_copied_registry_is_not_let_in(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the cluster's id and its secret."""
    shutil.copytree(tmp_path, tmp_path / "copy")
    with member(tmp_path / "copy", 3) as other:
        assert server_of(other).cluster_id == server_of(cluster.one).cluster_id
        brokers = on_loop(other, lambda: server_of(other).image.brokers)
        assert [node_id for node_id, each in brokers.items() if each.process] == [3], "those of the original have ended"
        address, secret = PeerAddress(member_of(cluster.one).endpoint, 1), cluster_secret(other)

        async def send() -> None:
            identity = member_of(other)._identity
            peers = PeerConnections(lambda node_id: address, identity, secret, server_of(other).failures, QUICK)
            try:
                for _ in range(3):
                    with pytest.raises(ConnectionLost, match="has a copy of this cluster's registry"):
                        await peers.send(1, ListGroupsRequest())
            finally:
                peers.close()

        run_on(other, send())
        on_loop(cluster.one, lambda: None)
    lines = [record.getMessage() for record in caplog.records if "a copy of this cluster's" in record.getMessage()]
    assert sorted(line.split(" ")[0] for line in lines) == ["broker", "refused"], "one line on each side"


def test_the_end_of_a_broker_ends_its_requests(cluster: Cluster) -> None:
    peers = member_of(cluster.two).peers
    assert cluster.send(cluster.two, 1).error_code == 0
    loop = server_of(cluster.two).loop
    results: list[Any] = []

    async def begin() -> None:
        future = peers.send(1, ListGroupsRequest())
        future.add_done_callback(lambda done: results.append(done.exception()))
        server_of(cluster.two).stop()

    asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
    on_loop(cluster.two, lambda: None)
    assert [str(error) for error in results] == ["the broker shuts down"]
