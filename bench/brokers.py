"""Brokers under test as processes: start, kill, first acknowledged record, memory and CPU of the whole process tree."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from barnabas.log.cleaner import cleaner_worker
from bench import peers
from bench.attached import attached

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
HOST = "127.0.0.1"
SAME_AS_KAFKA = ("num.partitions=4",)  # as in the properties that Apache Kafka runs with
KNOWN = ("kafka", "kfake", "barnabas")


class BrokerFailed(Exception):
    """A broker did not start, or did not acknowledge a record in time."""


class BrokerProcess:
    """One broker in its own empty directory and process group."""

    def __init__(self, name: str, command: str, port: int, directory: Path, *, durable: bool = True) -> None:
        self.name = name
        self.port = port
        self.directory = directory
        self.durable = durable
        self.command = command.format(port=port, address=self.address)
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.bytes_moved = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start() comes first"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.running
        self.directory.mkdir(parents=True, exist_ok=True)
        self.started_at = time.perf_counter()
        with (self.directory / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                attached(shlex.split(self.command)),
                cwd=self.directory,
                env={name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")},
                start_new_session=True,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def stop(self, signal_number: int = signal.SIGKILL, timeout_s: float = 120.0) -> None:
        """Signals the whole process group and waits for its end; a stopped broker stays stopped."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal_number)
        self._process.wait(timeout_s)

    def wait(self, timeout_s: float = 120.0) -> None:
        """Returns when the process has ended."""
        assert self._process is not None, "start() comes first"
        self._process.wait(timeout_s)

    def clear(self) -> None:
        """Empties the broker's directory; the broker must be stopped."""
        assert not self.running
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.bytes_moved = 0

    def first_ack_s(self, limit_s: float = 300.0) -> float:
        """Seconds from :meth:`start` to the first record that the broker acknowledged (topic made automatically)."""
        self.wait_for_port(limit_s)
        outcome: list[tuple[Any, float]] = []
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "linger.ms": 0,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 20,
                "retry.backoff.ms": 10,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "topic.metadata.propagation.max.ms": 60_000,
                "message.timeout.ms": int(limit_s * 1000),
                "log_level": 0,
            }
        )
        producer.produce(
            "first-ack", b"x", callback=lambda error, _: outcome.append((error, time.perf_counter() - self.started_at))
        )
        while not outcome and time.perf_counter() - self.started_at < limit_s:
            producer.poll(0.01)
        if not outcome or outcome[0][0]:
            raise BrokerFailed(f"{self.name}: no record acknowledged ({outcome or 'time out'}); {self._last_output()}")
        return outcome[0][1]

    def memory_mb(self) -> float:
        """Private memory (RssAnon) of the process tree in MB of 2**20 bytes."""
        kilobytes = 0
        for pid in process_tree(self.pid):
            for line in _read(f"/proc/{pid}/status").splitlines():
                if line.startswith("RssAnon"):
                    kilobytes += int(line.split()[1])
        return kilobytes / 1024

    def cpu_s(self) -> float:
        """User and system seconds that the process tree has used."""
        ticks = 0
        for pid in process_tree(self.pid):
            fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if fields:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / CLOCK_TICKS_PER_SECOND

    def log_files(self, topic: str, partition: int = 0) -> list[Path]:
        """The segment files of a partition, oldest first; empty for a broker that keeps nothing."""
        return sorted(self.directory.glob(f"**/{topic}-{partition}/*.log"))

    def _last_output(self) -> str:
        lines = [line for line in _read(str(self.directory / "out.log")).splitlines() if line.strip()]
        return f"its last output: {lines[-1].strip()[:200] if lines else 'none'}"

    def wait_for_port(self, limit_s: float) -> None:
        """Returns when the port is open, so that the real client does not wait for its backoff."""
        while time.perf_counter() - self.started_at < limit_s:
            if not self.running:
                raise BrokerFailed(f"{self.name}: ended at start; {self._last_output()}")
            try:
                socket.create_connection((HOST, self.port), 0.2).close()
                return
            except OSError:
                time.sleep(0.01)
        raise BrokerFailed(f"{self.name}: port {self.port} did not open in {limit_s:.0f} s; {self._last_output()}")


def make_broker(spec: str, root: Path, settings: Sequence[str] = SAME_AS_KAFKA) -> BrokerProcess:
    """A broker from ``kafka``, ``kfake``, ``barnabas`` or ``NAME=COMMAND`` with ``{port}`` or ``{address}`` in it.

    The command runs in an empty directory of its own and must stay in the foreground. ``settings`` (``name=value``) are
    for Barnabas and Apache Kafka, whose script sets what one node needs. Raises ``PeerUnavailable``.
    """
    name, _, command = spec.partition("=")
    port = free_port()
    if command:
        return BrokerProcess(name, command, port, root / name)
    if name == "kafka":
        command = " ".join([str(peers.kafka_script()), "{port}", "data", *settings])
        return BrokerProcess(name, command, port, root / name)
    if name == "kfake":
        return BrokerProcess(name, f"{peers.kfake()} {{port}}", port, root / name, durable=False)
    if name == "barnabas":
        command = f"{shlex.quote(sys.executable)} -m barnabas serve --data-dir data --listen {{address}}"
        command += "".join(f" --set {setting}" for setting in settings)
        return BrokerProcess(name, command, port, root / name)
    raise peers.PeerUnavailable(f"broker {name!r} is not known: use {', '.join(KNOWN)} or NAME=COMMAND with {{port}}")


def process_tree(pid: int) -> list[int]:
    """``pid`` and all its descendants, those that vanish meanwhile left out."""
    pids = [pid]
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return pids
    for thread in threads:
        for child in _read(f"/proc/{pid}/task/{thread}/children").split():
            pids += process_tree(int(child))
    return pids


def is_cleaner(pid: int) -> bool:
    """Says whether a process is the cleaner of a Barnabas broker; one that has ended is not."""
    return cleaner_worker.__name__ in _read(f"/proc/{pid}/cmdline")


def free_port() -> int:
    """A port whose successor is free too (Apache Kafka's controller listens there)."""
    while True:
        with socket.socket() as first:
            first.bind((HOST, 0))
            port = int(first.getsockname()[1])
            try:
                with socket.socket() as second:
                    second.bind((HOST, port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
