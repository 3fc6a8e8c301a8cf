"""A broker serves clients from when the controller has taken it in."""

import logging
import socket
import struct

import pytest

from barnabas.broker.cluster import member
from barnabas.protocol.apis import ApiKey
from barnabas.testing import Cluster

VERSION = 4
WAIT_S = 30.0


def ask_for_metadata(connection: socket.socket) -> None:
    """Sends Metadata v4 for no topic."""
    request = struct.pack(">hhih", ApiKey.METADATA, VERSION, 7, -1) + struct.pack(">i?", 0, False)
    connection.sendall(struct.pack(">i", len(request)) + request)


def brokers_told(connection: socket.socket) -> list[int]:
    """Reads a response, and returns the node ids of its brokers."""
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        data = stream.read(size)
    count = struct.unpack_from(">i", data, 8)[0]
    found, position = [], 12
    for _ in range(count):
        node_id, host_bytes = struct.unpack_from(">ih", data, position)
        position += 6 + host_bytes + 4
        position += 2 + max(struct.unpack_from(">h", data, position)[0], 0)
        found.append(node_id)
    return found


def test_clients_wait_for_a_broker_that_has_not_been_taken_in() -> None:
    """It would tell them that no broker lives: librdkafka forgets all addresses then, and never finds one again."""
    with Cluster(2) as cluster:
        controller = cluster.controller
        (other,) = {1, 2} - {controller}
        cluster.kill(other)
        cluster.cut(controller, other)
        cluster.start(other)
        host, port = cluster.broker(other).bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=0.5) as connection:
            ask_for_metadata(connection)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(WAIT_S)
            cluster.heal()
            assert sorted(brokers_told(connection)) == [1, 2]


def test_a_broker_that_waits_to_be_taken_in_says_what_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def waiting() -> list[str]:
        return [line for line in caplog.messages if line.startswith("clients are not accepted yet: ")]

    caplog.set_level(logging.WARNING, "barnabas.broker")
    with Cluster(2) as cluster:
        controller = cluster.controller
        (other,) = {1, 2} - {controller}
        cluster.kill(other)
        cluster.cut(controller, other)
        monkeypatch.setattr(member, "WAITING_S", 0.2)
        cluster.start(other)
        cluster.wait_for(waiting, what="the line")
        cluster.heal()
    (line,) = waiting()
    assert f" waits for the controller, broker {controller}: " in line


def test_a_broker_that_was_never_taken_in_stops_and_leaves_its_port() -> None:
    with Cluster(2) as cluster:
        controller = cluster.controller
        (other,) = {1, 2} - {controller}
        cluster.kill(other)
        cluster.cut(controller, other)
        for _ in range(2):
            cluster.start(other)
            cluster.kill(other)
