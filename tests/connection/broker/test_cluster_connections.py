"""Connections to the brokers of a simulated cluster, from opening to backoff."""

import pytest

from barnabas.connection.broker.cluster_connections import ConnectionSettings
from barnabas.connection.network_client import ANY
from barnabas.errors import OperationTimedOut
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
