"""Connections to the brokers of a simulated cluster, from opening to backoff."""

import random
import sys
import threading

import pytest

from barnabas.connection.broker.client_request import ClientRequest, Error
from barnabas.connection.broker.cluster_connections import ClusterConnections, ConnectionSettings
from barnabas.connection.network_client import ANY
from barnabas.errors import Attempt, ConnectionLost, OperationTimedOut
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from connection.rig import groups, sent
from simulation.cluster import SILENT, SingleClientCluster


def test_sockets_are_looked_at_as_long_as_they_may_have_something_to_tell() -> None:
    """Who sends without a pause sees that a connection is open, and that a full socket has room again."""
    cluster = SingleClientCluster()
    groups(cluster)
    assert not cluster.network_client.has_in_flight_requests
    promise = sent(cluster, ListGroupsRequest(), ANY)
    cluster.network_client.advance(cluster.network_client.now)
    assert cluster.network_client.has_in_flight_requests  # the connection opens
    cluster.result(promise)
    cluster.run(seconds=1)
    assert not cluster.network_client.has_in_flight_requests
    number = next(iter(cluster.links))
    cluster.network_client.connections.congested(number, True)
    assert cluster.network_client.has_in_flight_requests
    cluster.network_client.connections.congested(number, False)
    assert not cluster.network_client.has_in_flight_requests


def test_reconnects_slow_down() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(backoff_s=0.05, backoff_max_s=1.0))
    cluster.up.clear()
    cluster.network_client.add_topics(["t"])
    cluster.run(seconds=10)
    assert 10 <= len(cluster.connected) <= 20


def test_a_request_that_expires_in_the_backoff_is_no_failed_connection() -> None:
    settings = ConnectionSettings(backoff_s=10, backoff_max_s=100)
    lost: list[Error] = []
    connections = ClusterConnections(
        settings, on_ready=lambda _: None, on_lost=lambda _, error: lost.append(error), rng=random.Random(1)
    )
    node = connections.node(1, 0, "127.0.0.1", 9092)
    connections.open(node, 0)
    (connect,) = connections.take_connects()
    connections.lost(connect.number, (Attempt(node.address, "tcp", "refused", ""),), 1)
    backoff_until = node.backoff_until
    assert (node.failures, len(lost), backoff_until > 5) == (1, 1, True)

    failed: list[Error | None] = []
    for expires in (4, backoff_until):
        request = ClientRequest(ListGroupsRequest(), lambda _, error: failed.append(error), timeout_s=expires - 2)
        connections.open(node, 2).send(request, 2)
        assert connections.next_deadline() == expires
        connections.advance(expires)
        assert isinstance(failed[-1], ConnectionLost)
        assert (node.failures, node.backoff_until, len(lost)) == (1, backoff_until, 1)
        assert not connections.take_connects()
    assert len(failed) == 2
    connections.open(node, backoff_until)
    assert len(connections.take_connects()) == 1


def test_a_silent_handshake_is_given_up() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(setup_timeout_s=3))
    cluster.handlers[18] = lambda received: SILENT
    with pytest.raises(OperationTimedOut, match="not a Kafka broker, or a TLS listener"):
        cluster.result(cluster.network_client.topic("t", 10))


def test_idle_connections_are_closed_and_opened_again() -> None:
    cluster = SingleClientCluster(connection=ConnectionSettings(idle_max_s=60), metadata_max_age_s=1e9)
    groups(cluster)
    cluster.result(sent(cluster, ListGroupsRequest(), ANY))
    cluster.run(seconds=200)
    assert not cluster.links
    assert cluster.result(sent(cluster, ListGroupsRequest(), ANY)) == ListGroupsResponse()


def test_another_thread_may_ask_what_is_being_tried() -> None:
    """The error of a call that has waited too long is made in the thread of its caller."""
    connections = ClusterConnections(
        ConnectionSettings(), on_ready=lambda _: None, on_lost=lambda *_: None, rng=random.Random(1)
    )
    nodes = [connections.node(number, 0, "127.0.0.1", 9000 + number) for number in range(20)]
    over = threading.Event()

    def open_and_lose() -> None:
        while not over.is_set():
            for node in nodes:
                connections.open(node, 0)
            for connect in connections.take_connects():
                connections.lost(connect.number, (Attempt("127.0.0.1", "tcp", "refused", ""),), 0)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=open_and_lose)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(20_000):
            assert len(connections.connecting()) <= len(nodes)
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
