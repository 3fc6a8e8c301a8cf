"""Bytes between two brokers are held back in the direction that is cut off, and come when it is healed."""

import os
import socket
from collections.abc import Iterator

import pytest

from barnabas.testing.ports import ReservedPort
from cluster.links import Links, owner_of

HOST = "127.0.0.1"
SOON_S = 0.3
WAIT_S = 20.0


@pytest.fixture
def ends() -> Iterator[tuple[Links, socket.socket, socket.socket]]:
    """A connection from broker 1 (this process) to broker 2, and its end there."""
    reserved = [ReservedPort() for _ in range(3)]
    first, second, third = (port.number for port in reserved)
    with socket.create_server((HOST, third)) as listener:
        links = Links({1: (first, second), 2: (second, third)})
        links.started(1, os.getpid())
        client = socket.create_connection((HOST, second), timeout=WAIT_S)
        server, _ = listener.accept()
        server.settimeout(WAIT_S)
        yield links, client, server
        for each in (client, server):
            each.close()
        links.close()
    for port in reserved:
        port.release()


def is_silent(end: socket.socket) -> bool:
    end.settimeout(SOON_S)
    try:
        return not end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(WAIT_S)


def test_what_is_sent_arrives(ends: tuple[Links, socket.socket, socket.socket]) -> None:
    _, client, server = ends
    client.sendall(b"there")
    assert server.recv(5, socket.MSG_WAITALL) == b"there"
    server.sendall(b"back")
    assert client.recv(4, socket.MSG_WAITALL) == b"back"


def test_a_cut_one_way_holds_back_what_comes_from_the_broker(
    ends: tuple[Links, socket.socket, socket.socket],
) -> None:
    links, client, server = ends
    heal = links.cut(1, 2, both_ways=False)
    client.sendall(b"there")
    server.sendall(b"back")
    assert client.recv(4, socket.MSG_WAITALL) == b"back"
    assert is_silent(server)
    heal()
    assert server.recv(5, socket.MSG_WAITALL) == b"there"


def test_a_cut_both_ways_stops_the_answers_too(ends: tuple[Links, socket.socket, socket.socket]) -> None:
    links, client, server = ends
    heal, heal_other = links.cut(2, 1, both_ways=True), links.cut(1, 2, both_ways=True)
    client.sendall(b"there")
    server.sendall(b"back")
    heal_other()
    assert is_silent(server)
    assert is_silent(client)
    heal()
    assert server.recv(5, socket.MSG_WAITALL) == b"there"
    assert client.recv(4, socket.MSG_WAITALL) == b"back"


def test_the_owner_of_a_connection_is_the_process_that_has_it() -> None:
    with socket.create_server((HOST, 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        port, to = client.getsockname()[1], listener.getsockname()[1]
        assert owner_of(port, to, {3: os.getppid(), 7: os.getpid()}) == 7
        assert owner_of(port, to, {3: os.getppid()}) is None


def test_connections_may_have_the_same_local_port() -> None:
    """One of them has ended, and nobody owns it any more."""
    with socket.create_server((HOST, 0)) as first, socket.create_server((HOST, 0)) as second:
        clients = []
        for listener in (first, second):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind((HOST, clients[0].getsockname()[1] if clients else 0))
            client.connect(listener.getsockname())
            clients.append(client)
        port = clients[0].getsockname()[1]
        clients[0].close()
        with clients[1]:
            assert owner_of(port, second.getsockname()[1], {7: os.getpid()}) == 7
            assert owner_of(port, first.getsockname()[1], {7: os.getpid()}) is None
