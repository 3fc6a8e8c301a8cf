"""The broker under test: Barnabas by default, Apache Kafka or an outside broker by environment.

BARNABAS_TEST_BROKER=HOST:PORT  a broker that already runs; tests that restart it or read its files are skipped.
BARNABAS_TEST_PEER=kafka        Apache Kafka from BARNABAS_KAFKA_LIBS (a folder of its jars), to prove the tests.
BARNABAS_TEST_KAFKA=4.3.1       That release of it, its Java client and its tools in place of the newest.
BARNABAS_TEST_PEER=kafka-2.4.1  The oldest one that the clients promise to work with, and the ZooKeeper that it needs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.attached import attached
from bench.peers import KAFKA_VERSION
from jvm import JVM

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
BUILD = Path(__file__).parents[3] / "build/interop"
OLD_KAFKA_LIBS = BUILD / "kafka-broker-2.4.1"
KAFKA_LIBS = Path(os.environ.get("BARNABAS_KAFKA_LIBS", BUILD / f"kafka-{KAFKA_VERSION}"))

#: What the tests count on, under Kafka's names.
SETTINGS = {
    "num.partitions": "3",
    "auto.create.topics.enable": "true",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.state.log.num.partitions": "8",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


#: Below the range that the system takes for outgoing connections, so that a restarted broker gets its port back.
_FIRST_PORT = 21300 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = range(_FIRST_PORT, _FIRST_PORT + 100)
_handed_out: set[int] = set()


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in _handed_out:
                probe.bind(("127.0.0.1", port))
                _handed_out.add(port)
                return port
    raise AssertionError(f"no free port in {PORTS.start} to {PORTS.stop - 1}")


def environment() -> dict[str, str]:
    """That of the tests without the variables that a broker would take for its settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}


class Broker:
    """A broker that the tests may only speak to."""

    name = "outside"
    data_dir: Path | None = None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.bootstrap.rsplit(":", 1)
        return host, int(port)

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def check_alive(self) -> None:
        with socket.create_connection(self.address, timeout=45):
            pass


class LocalBroker(Broker):
    """A broker process of our own with its data below `directory`; restarts keep the port and the data."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(f"127.0.0.1:{free_port()}")
        self._directory = directory
        self.data_dir: Path = directory / "data"
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = directory / "broker.log"

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                attached(self._command()), cwd=self._directory, stdout=log, stderr=log, env=environment()
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None:
                raise AssertionError(
                    f"{self.name} ended at once, exit {self._process.returncode}:\n{self.last_words()}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} was not ready within {START_TIMEOUT_S:g} s:\n{self.last_words()}")
            time.sleep(0.02)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        if crash:
            self.kill()
        else:
            self.stop()
        self.start()

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} died:\n{self.last_words()}"
        super().check_alive()

    def resident_bytes(self) -> int:
        """Memory of the process (VmRSS)."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024

    def last_words(self) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-25:])

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"{self.name} did not stop within {STOP_TIMEOUT_S:g} s:\n{self.last_words()}"
            ) from None

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError


class BarnabasBroker(LocalBroker):
    name = "barnabas"

    def _command(self) -> list[str]:
        self._ready_file.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "barnabas",
            "serve",
            "--data-dir",
            str(self.data_dir),
            "--listen",
            self.bootstrap,
        ]
        command += ["--ready-file", str(self._ready_file)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return command

    @property
    def _ready_file(self) -> Path:
        return self._directory / "ready"

    def _is_ready(self) -> bool:
        return self._ready_file.exists() and self._ready_file.read_text().startswith(self.bootstrap + "\n")


class KafkaBroker(LocalBroker):
    name = "kafka"

    def start(self) -> None:
        if not self.data_dir.exists():
            self._format()
        super().start()

    def _format(self) -> None:
        controller = f"127.0.0.1:{free_port()}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self._settings,
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        (self._directory / "server.properties").write_text("".join(lines))
        arguments = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", "server.properties", *self.format_options]
        java = self._java("kafka.tools.StorageTool", *arguments)
        subprocess.run(java, cwd=self._directory, check=True, capture_output=True, timeout=60)

    def _command(self) -> list[str]:
        return self._java("kafka.Kafka", "server.properties")

    libs = KAFKA_LIBS
    format_options: tuple[str, ...] = ()

    def _java(self, *arguments: str) -> list[str]:
        return [*JVM, "-Xmx512m", "-cp", f"{self.libs}/*", *arguments]

    def _is_ready(self) -> bool:
        # Kafka opens the port only when the broker may serve.
        try:
            super().check_alive()
        except OSError:
            return False
        return True


class OldKafkaBroker(KafkaBroker):
    """Kafka 2.4.1: a ZooKeeper of its own comes and goes with it."""

    name = "kafka-2.4.1"
    libs = OLD_KAFKA_LIBS
    _zookeeper: subprocess.Popen[bytes] | None = None
    _zookeeper_port = 0

    def _format(self) -> None:
        self._zookeeper_port = free_port()
        properties = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "zookeeper.connection.timeout.ms": "30000",
            "log.dirs": str(self.data_dir),
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self._settings,
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        (self._directory / "server.properties").write_text("".join(lines))
        self.data_dir.mkdir()

    def start(self) -> None:
        if not self.data_dir.exists():
            self._format()
        if self._zookeeper is None:
            arguments = [str(self._zookeeper_port), str(self._directory / "zookeeper")]
            with (self._directory / "zookeeper.log").open("ab") as log:
                self._zookeeper = subprocess.Popen(
                    attached(self._java("org.apache.zookeeper.server.ZooKeeperServerMain", *arguments)),
                    cwd=self._directory,
                    stdout=log,
                    stderr=log,
                    env=environment(),
                )
        super().start()

    def stop(self) -> None:
        super().stop()
        zookeeper, self._zookeeper = self._zookeeper, None
        if zookeeper is not None:
            zookeeper.terminate()
            zookeeper.wait(STOP_TIMEOUT_S)

    def restart(self, *, crash: bool = False) -> None:
        self._end(signal.SIGKILL if crash else signal.SIGTERM)
        self.start()


KINDS = {"barnabas": BarnabasBroker, "kafka": KafkaBroker, "kafka-2.4.1": OldKafkaBroker}


def local_broker(directory: Path, settings: dict[str, str] | None = None) -> LocalBroker:
    """A broker of the kind that the environment asks for, not yet started."""
    directory.mkdir(parents=True, exist_ok=True)
    return KINDS[os.environ.get("BARNABAS_TEST_PEER", "barnabas")](directory, settings)


def outside_broker() -> Broker | None:
    bootstrap = os.environ.get("BARNABAS_TEST_BROKER")
    return Broker(bootstrap) if bootstrap else None
