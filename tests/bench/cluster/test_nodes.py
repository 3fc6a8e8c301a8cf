"""Clusters of a benchmark: their commands, ports and processes."""

import os
import socket
from pathlib import Path

import pytest

from bench.brokers import HOST
from bench.cluster.nodes import NODES, free_ports, is_open, listeners, make_cluster
from bench.peers import PeerUnavailable


def test_one_command_starts_all_brokers_on_ports_in_a_row(tmp_path: Path) -> None:
    cluster = make_cluster("mine=serve {address} {port}", tmp_path)
    first = cluster.ports[0]
    assert list(cluster.ports) == [first + node for node in range(NODES)]
    assert cluster.address == f"{HOST}:{first},{HOST}:{first + 1},{HOST}:{first + 2}"
    assert cluster.restarts_itself
    with pytest.raises(PeerUnavailable, match="cluster 'redpanda' is not known: use kafka, "):
        make_cluster("redpanda", tmp_path)


def test_apache_kafka_has_a_process_for_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.kafka_node_script", lambda: Path("node.sh"))
    cluster = make_cluster("kafka", tmp_path)
    assert not cluster.restarts_itself
    assert not cluster.running


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert is_open(port)
        assert listeners([os.getpid(), os.getppid()], port) == [os.getpid()]
        assert port not in free_ports(6)
    assert not is_open(port)
    assert listeners([os.getpid()], port) == []
