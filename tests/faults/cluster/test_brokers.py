"""The ports of a cluster are its own until it has stopped, whoever starts another cluster meanwhile."""

import socket
from pathlib import Path

import pytest

from cluster.brokers import HOST, ClusterProcesses


def bind(port: int) -> None:
    with socket.socket() as other:
        other.bind((HOST, port))


def test_nobody_else_gets_a_port_of_a_broker_that_is_down(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, 3, {}, linked=True)
    ports = {cluster.port(broker) for broker in cluster.ids}
    assert len(ports) == 3
    for port in ports:
        with pytest.raises(OSError, match="in use"):
            bind(port)
    cluster.stop_all()
    for port in ports:
        bind(port)
