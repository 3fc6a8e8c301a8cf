"""Three brokers as processes on one registry, each of which a test can kill and start again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.connection.cluster import PartitionView
from barnabas.errors import BarnabasError
from barnabas.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.metadata.partitioning import partition_for
from barnabas.testing.ports import ReservedPort
from barnabas.types import TopicPartition
from bench.attached import attached
from stopped_processes import stop_process

__all__ = ["QUICK", "ClusterProcesses", "processes"]

READY_S = 60.0
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}
QUICK = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 10}


class ClusterProcesses:
    """Brokers 1 to 3. A broker that is started again keeps its port."""

    def __init__(self, root: Path, *, zookeeper: str = "", source: Path | None = None) -> None:
        """The registry is a file, or at `zookeeper`. `source` is where another release lies; None: this one."""
        self._root = root
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._addresses: dict[int, str] = {}
        self._ports = {node_id: ReservedPort() for node_id in (1, 2, 3)}
        self.begin(zookeeper=zookeeper, source=source)

    def begin(self, *, zookeeper: str = "", source: Path | None = None) -> None:
        """Starts all brokers."""
        registry = ("--zookeeper", zookeeper) if zookeeper else ("--registry", str(self._root / "registry.db"))
        self._registry = registry
        for node_id in (1, 2, 3):
            self._start(node_id, source)
            if source is not None:  # the release before could not found a registry file from several processes at once
                self.wait_for(lambda: self._is_ready(1), "ready broker 1")
        self.wait_for(lambda: all(self._is_ready(node_id) for node_id in (1, 2, 3)), "ready brokers")

    @property
    def bootstrap(self) -> str:
        return ",".join(self._addresses.values())

    def address(self, node_id: int) -> tuple[str, int]:
        host, _, port = self._addresses[node_id].partition(":")
        return host, int(port)

    def others(self, node_id: int) -> str:
        """The bootstrap servers without one broker."""
        return ",".join(address for other, address in self._addresses.items() if other != node_id)

    def output(self, node_id: int) -> str:
        return (self._root / f"{node_id}.log").read_text(errors="replace")

    def _start(self, node_id: int, source: Path | None = None) -> None:
        ready = self._root / f"{node_id}.ready"
        ready.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "barnabas", "serve", "--node-id", str(node_id)),
            *(*self._registry, "--data-dir", str(self._root / f"broker-{node_id}")),
            *("--listen", f"127.0.0.1:{self._ports[node_id].number}", "--ready-file", str(ready)),
        ]
        for name, value in SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        with (self._root / f"{node_id}.log").open("ab") as out:
            self._processes[node_id] = subprocess.Popen(
                attached(command),
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _is_ready(self, node_id: int) -> bool:
        process = self._processes[node_id]
        assert process.poll() is None, self.output(node_id)[-2000:]
        ready = self._root / f"{node_id}.ready"
        text = ready.read_text().strip() if ready.exists() else ""
        if text:
            self._addresses[node_id] = text
        return bool(text)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            assert time.monotonic() < deadline, f"no {what} within {READY_S:.0f} s"
            time.sleep(0.01)

    def kill(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGKILL)
        self._processes[node_id].wait()

    def restart(self, node_id: int, source: Path | None = None) -> None:
        """Ends a broker by SIGTERM, and starts it from `source`."""
        self._processes[node_id].send_signal(signal.SIGTERM)
        assert self._processes[node_id].wait(READY_S) == 0, self.output(node_id)[-2000:]
        self._start(node_id, source)
        self.wait_for(lambda: self._is_ready(node_id), f"ready broker {node_id}")

    def end(self) -> None:
        """Ends all brokers by SIGTERM."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for node_id, process in self._processes.items():
            assert process.wait(READY_S) == 0, self.output(node_id)[-2000:]

    def pause(self, node_id: int) -> None:
        stop_process(self._processes[node_id].pid)

    def resume(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """Starts the brokers again that were killed. Returns when all replicas are in sync."""
        killed = [node_id for node_id, process in self._processes.items() if process.poll() is not None]
        for node_id in killed:
            self._start(node_id)
        self.wait_for(lambda: all(self._is_ready(node_id) for node_id in killed), f"ready brokers {killed}")
        self.wait_for(lambda: not self.out_of_sync(), "full ISRs")

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for port in self._ports.values():
            port.release()

    # --- topics -----------------------------------------------------------------------------------------------------

    def create(self, name: str, assignments: Sequence[Sequence[int]]) -> None:
        """A topic with these replicas, the leader first."""
        with self.admin() as admin:
            admin.create_topics(NewTopic(name, assignments=dict(enumerate(assignments))))

    def admin(self) -> barnabas.Admin:
        return barnabas.Admin(bootstrap_servers=self.bootstrap, **QUICK)  # type: ignore[arg-type]

    def partitions(self, topic: str) -> Sequence[PartitionView]:
        with self.admin() as admin:
            found = {view.name: view for view in admin.list_topics(internal=True)}
        return found[topic].in_order()

    def committed(self, topic: str) -> list[str]:
        """The values, sorted, that a consumer with read_committed sees up to the end."""
        partitions = [TopicPartition(topic, partition.partition) for partition in self.partitions(topic)]
        with barnabas.Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **QUICK,  # type: ignore[arg-type]
        ) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            values: list[str] = []
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                values += [record.value.decode() for record in consumer.poll(timeout=1)]
        return sorted(values)

    def coordinator(self, *, group: str = "", transactional_id: str = "") -> int:
        partitions = self.partitions(CONSUMER_OFFSETS if group else TRANSACTION_STATE)
        return int(partitions[partition_for(group or transactional_id, len(partitions))].leader)

    def controller(self) -> int:
        with self.admin() as admin:
            return int(admin.describe_cluster().controller_id)

    def out_of_sync(self) -> list[str]:
        try:
            with self.admin() as admin:
                views = admin.list_topics(internal=True)
        except BarnabasError as error:
            return [str(error)]
        return [
            f"{view.name}-{partition.partition}"
            for view in views
            for partition in view.in_order()
            if set(partition.in_sync_replicas) != set(partition.replicas)
        ]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    cluster = ClusterProcesses(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster
    finally:
        cluster.stop()
