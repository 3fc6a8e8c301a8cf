"""Brokers of a benchmark: their commands, ports and processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench.brokers import free_port, is_cleaner, make_broker, process_tree
from bench.peers import PeerUnavailable


def test_a_broker_of_ones_own_gets_its_port(tmp_path: Path) -> None:
    broker = make_broker("mine=serve --on {address} --port {port}", tmp_path)
    assert broker.command == f"serve --on {broker.address} --port {broker.port}"
    assert (broker.name, broker.directory, broker.durable, broker.running) == ("mine", tmp_path / "mine", True, False)
    ours = make_broker("barnabas", tmp_path, ["a=1", "b=2"])
    assert ours.command.endswith(f"--data-dir data --listen {ours.address} --set a=1 --set b=2")
    with pytest.raises(PeerUnavailable, match="broker 'redpanda' is not known: use kafka, "):
        make_broker("redpanda", tmp_path)


def test_two_ports_are_free() -> None:
    port = free_port()
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", port))
        second.bind(("127.0.0.1", port + 1))


def test_processes_are_counted_with_their_children() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"1\n"
        tree = process_tree(parent.pid)
        assert tree[0] == parent.pid
        assert len(tree) == 2
        assert set(tree) < set(process_tree(os.getpid()))
        assert not is_cleaner(parent.pid)
        parent.communicate(b"\n", timeout=60)
    assert process_tree(parent.pid) == [parent.pid]
