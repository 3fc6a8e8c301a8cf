"""Two brokers of one cluster over TCP: authentication, introduction, forwarded requests, wrong secrets, restarts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.peers.forwarding import Forwarder
from barnabas.broker.peers.peer_connections import PeerAddress, PeerConnections
from barnabas.broker.requests.request_context import RequestContext
from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.errors import ConnectionLost, SaslAuthenticationFailed
from barnabas.protocol.apis import ApiKey, response_header_version
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.testing import Broker
from broker.peers.conftest import run_on
from broker.wire import Wire, frame, on_loop, server_of

SETTINGS = ConnectionSettings(backoff_s=0.001, backoff_max_s=0.01)
REQUEST = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000
)


class Cluster:
    """Brokers with one registry, and the addresses that they know of each other."""

    def __init__(self, directory: Path) -> None:
        self.one = Broker(data_dir=directory / "one", settings={"node.id": 1}).start()
        (directory / "two").mkdir()
        (directory / "two" / "registry.db").symlink_to(directory / "one" / "registry.db")
        self.two = Broker(data_dir=directory / "two", settings={"node.id": 2}).start()
        self.addresses: dict[int, PeerAddress] = {}
        for broker in (self.one, self.two):
            self.publish(broker)

    def publish(self, broker: Broker) -> None:
        """Opens the listener for brokers, and lets the others know its address."""
        endpoint = run_on(broker, server_of(broker).open_inter_broker_listener())
        server = server_of(broker)
        epoch = on_loop(broker, lambda: server.image.brokers[server.node_id].epoch)
        self.addresses[server.node_id] = PeerAddress(endpoint, epoch)

    def peers_of(self, broker: Broker) -> PeerConnections:
        return run_on(broker, server_of(broker).connect_to_peers(self.addresses.get, SETTINGS))

    def send(self, broker: Broker, to: int) -> Any:
        peers = self.peers_of(broker)

        async def send() -> Any:
            return await peers.send(to, ListGroupsRequest())

        return run_on(broker, send())

    def close(self) -> None:
        self.two.close()
        self.one.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def forwarded(cluster: Cluster, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Returns the response that a client of the second broker gets from the controller, the first one."""
    server, peers = server_of(cluster.two), cluster.peers_of(cluster.two)
    data = frame(request, 7, 99, "client")[4:]

    async def forward() -> Any:
        (connection,) = server._acceptor.connections  # type: ignore[union-attr]
        context = RequestContext(ApiKey.CREATE_TOPICS, 7, 99, b"client", connection)
        return await Forwarder(peers, 2, lambda: server.image.controller_id).forward(memoryview(data), context)

    with Wire(cluster.two) as client:
        client.ask(ListGroupsRequest(), 4)
        answer = b"".join(run_on(cluster.two, forward()))
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert int.from_bytes(answer[4:8], "big") == 99
    return decode(CreateTopicsResponse, 7, answer, 8 + response_header_version(ApiKey.CREATE_TOPICS, 7))[0]


def test_brokers_reach_each_other(cluster: Cluster) -> None:
    assert server_of(cluster.one).cluster_id == server_of(cluster.two).cluster_id
    assert cluster.send(cluster.one, 2).error_code == 0
    assert cluster.send(cluster.two, 1).error_code == 0


def test_the_controller_creates_a_topic_for_a_client_of_the_other_broker(cluster: Cluster) -> None:
    with Wire(cluster.two) as client:
        refused = client.ask(REQUEST, 7)
    assert [topic.error_code for topic in refused.topics] == [41], "nothing is forwarded by itself yet"
    answer = forwarded(cluster, REQUEST)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0)]
    assert cluster.one.topics() == ["t"]


def test_a_broker_that_restarts_is_reached_again(cluster: Cluster) -> None:
    assert cluster.send(cluster.two, 1).error_code == 0
    cluster.one.stop()
    with pytest.raises(ConnectionLost):
        cluster.send(cluster.two, 1)
    cluster.one.start()
    cluster.publish(cluster.one)
    assert cluster.send(cluster.two, 1).error_code == 0


def test_a_broker_of_another_cluster_is_not_let_in(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=tmp_path / "other", settings={"node.id": 3}) as other:
        server = server_of(other)
        peers = run_on(other, server.connect_to_peers(cluster.addresses.get, SETTINGS))

        async def send() -> None:
            for _ in range(3):
                with pytest.raises(SaslAuthenticationFailed):
                    await peers.send(1, ListGroupsRequest())

        run_on(other, send())
        on_loop(cluster.one, lambda: None)
    lines = [record.getMessage() for record in caplog.records if "wrong credentials" in record.getMessage()]
    assert sorted(line.split(" ")[0] for line in lines) == ["broker", "the"], "one line on each side"


def test_the_end_of_a_broker_ends_its_requests(cluster: Cluster) -> None:
    peers = cluster.peers_of(cluster.two)
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
