"""Processes of brokers, found by the locks of their directories."""

import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.broker.supervisor.running_brokers import _FLOCK, process_of, stop_broker
from barnabas.errors import UsageError

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def directory(path: Path, node_id: int) -> Path:
    path.mkdir(parents=True)
    (path / "meta.properties").write_text(f"version=1\nnode.id={node_id}\n")
    return path


@pytest.mark.parametrize("place", [".", "broker-2", "brokers/broker-2"])
def test_the_process_that_holds_the_lock_is_ended(tmp_path: Path, place: str) -> None:
    own = directory(tmp_path / "data" / place, 2)
    command = [sys.executable, "-c", HOLDER, str(own / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert process_of(str(tmp_path / "data"), 2) == holder.pid
        stop_broker(str(tmp_path / "data"), 2)
        assert holder.wait() == -15


@pytest.mark.parametrize("pid", [-1, -77, 0])
def test_the_holder_of_a_lock_on_another_machine_is_no_process_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    (directory(tmp_path / "broker-2", 2) / ".lock").touch()

    def locked_elsewhere(_file: object, _command: int, _asked: bytes) -> bytes:
        kind = fcntl.F_WRLCK
        mac = sys.platform == "darwin"
        return struct.pack(_FLOCK, 0, 0, pid, kind, 0) if mac else struct.pack(_FLOCK, kind, 0, 0, 0, pid)

    monkeypatch.setattr(fcntl, "fcntl", locked_elsewhere)
    with pytest.raises(UsageError, match="no broker 2 runs"):
        process_of(str(tmp_path), 2)


def test_no_process_is_ended_where_none_holds_the_lock(tmp_path: Path) -> None:
    own = directory(tmp_path / "broker-2", 2)
    for _ in range(2):
        with pytest.raises(UsageError, match="no broker 2 runs"):
            stop_broker(str(tmp_path), 2)
        (own / ".lock").touch()
    with pytest.raises(UsageError, match="no broker 1 runs"):
        process_of(str(tmp_path), 1)
    assert os.path.exists(own / ".lock")
