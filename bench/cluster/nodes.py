"""Clusters under test as processes: one command for all brokers (Barnabas), or one for each (Apache Kafka)."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import peers
from bench.brokers import HOST, BrokerFailed, BrokerProcess, process_tree

NODES = 3
PORTS = range(23_000, 32_000)
"""Below those that the kernel gives to clients: the port of a dead broker stays free for its return."""
LISTENING = "0A"
RESTART_LIMIT_S = 120.0


class Cluster:
    """Brokers that are numbered from 0, each on the port of its number."""

    def __init__(self, name: str, processes: Sequence[BrokerProcess], ports: Sequence[int], directory: Path) -> None:
        self.name = name
        self.ports = ports
        self.directory = directory
        self.bytes_moved = 0
        self.started_at = 0.0
        self._processes = processes

    @property
    def address(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def restarts_itself(self) -> bool:
        """Says whether one process looks after all brokers."""
        return len(self._processes) < len(self.ports)

    @property
    def running(self) -> bool:
        return all(process.running for process in self._processes)

    def start(self) -> None:
        self.started_at = time.perf_counter()
        for process in self._processes:
            process.start()

    def stop(self) -> None:
        for process in self._processes:
            process.stop()

    def clear(self) -> None:
        """Removes what the cluster has written; it must be stopped."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.bytes_moved = 0

    def cpu_s(self) -> float:
        return sum(process.cpu_s() for process in self._processes if process.running)

    def memory_mb(self) -> float:
        return sum(process.memory_mb() for process in self._processes if process.running)

    def pid_of(self, node: int) -> int:
        """Returns the process of one broker: the one that listens on its port."""
        started = self._processes[0 if self.restarts_itself else node].pid
        found = listeners(process_tree(started), self.ports[node])
        if len(found) != 1:
            raise BrokerFailed(f"{self.name}: {len(found)} processes listen on port {self.ports[node]}, not one")
        return found[0]

    def signal(self, node: int, number: int) -> None:
        os.kill(self.pid_of(node), number)

    def bring_back(self, node: int) -> float | None:
        """Starts a broker again that was sent a signal, unless its supervisor does, and returns when it listens. Tells
        when it was started, None if by its supervisor."""
        started_at = None
        if not self.restarts_itself:
            self._processes[node].wait()
            self._processes[node].start()
            started_at = self._processes[node].started_at
        self.wait_for_port([self.ports[node]], RESTART_LIMIT_S)
        return started_at

    def wait_for_port(self, ports: Iterable[int], limit_s: float) -> None:
        """Returns when one of the ports is open."""
        deadline = time.monotonic() + limit_s
        while not any(map(is_open, ports)):
            if time.monotonic() > deadline or not self.running:
                raise BrokerFailed(f"{self.name}: no broker listens, {'time out' if self.running else 'it has ended'}")
            time.sleep(0.01)


@contextmanager
def made_clusters(specs: str, make: Callable[..., Cluster]) -> Iterator[tuple[list[Cluster], list[str]]]:
    """The context in which the clusters of comma-separated specs may run, with what is missing for the others.
    ``make`` gets a spec and ``root``, a directory that is removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="barnabas-bench-cluster-"))
    clusters: list[Cluster] = []
    try:
        clusters, skipped = peers.make_available(specs, partial(make, root=root))
        yield clusters, skipped
    finally:
        for cluster in clusters:
            cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


def make_cluster(spec: str, root: Path) -> Cluster:
    """A cluster from ``kafka``, ``barnabas`` or ``NAME=COMMAND`` with ``{port}`` or ``{address}`` of the first of its
    brokers, which starts all of them on that and the next ports. Raises ``PeerUnavailable``."""
    name, _, command = spec.partition("=")
    ports = free_ports(2 * NODES)
    clients, controllers = ports[:NODES], ports[NODES:]
    directory = root / name
    if name == "kafka" and not command:
        script = peers.kafka_node_script()
        lists = " ".join(",".join(map(str, each)) for each in (clients, controllers))
        processes = [
            BrokerProcess(name, f"{script} {node + 1} data {lists}", port, directory / f"node-{node + 1}")
            for node, port in enumerate(clients)
        ]
        return Cluster(name, processes, clients, directory)
    if name == "barnabas" and not command:
        python = shlex.quote(sys.executable)
        command = f"{python} -m barnabas serve --brokers {NODES} --data-dir data --listen {{address}}"
    if not command:
        raise peers.PeerUnavailable(f"cluster {name!r} is not known: use kafka, barnabas or NAME=COMMAND with {{port}}")
    return Cluster(name, [BrokerProcess(name, command, clients[0], directory / "all")], clients, directory)


def free_ports(count: int) -> list[int]:
    """So many ports in a row that nobody listens on."""
    while True:
        first = random.randrange(PORTS.start, PORTS.stop - count)
        found = list(range(first, first + count))
        if not any(map(is_open, found)):
            return found


def is_open(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 0.3).close()
    except OSError:
        return False
    return True


def listeners(pids: Iterable[int], port: int) -> list[int]:
    """Those of the processes that listen on a TCP port."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return [pid for pid in pids if sockets & _open_files(pid)]


def _open_files(pid: int) -> set[str]:
    found = set()
    try:
        for file in os.listdir(f"/proc/{pid}/fd"):
            found.add(os.readlink(f"/proc/{pid}/fd/{file}"))
    except OSError:
        pass  # it has ended, or closed the file
    return found
