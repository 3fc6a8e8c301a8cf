"""Ports that stay a broker's own while it does not listen."""

import socket

import pytest

from barnabas.network.acceptor import open_listener
from barnabas.testing import Broker
from barnabas.testing.ports import ReservedPort


def test_a_broker_may_listen_on_a_reserved_port_again_and_again() -> None:
    port = ReservedPort()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port.number))
        with open_listener("127.0.0.1", port.number, 5), socket.create_connection(("127.0.0.1", port.number)):
            pass
    port.release()


def test_nobody_else_gets_a_reserved_port() -> None:
    port = ReservedPort()
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind(("127.0.0.1", port.number))
    port.release()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port.number))


def test_a_broker_that_was_stopped_keeps_its_port() -> None:
    with Broker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        broker.stop()
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind((host, int(port)))
        broker.start()
        assert broker.bootstrap_servers == f"{host}:{port}"
