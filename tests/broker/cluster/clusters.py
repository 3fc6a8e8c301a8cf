"""Clusters of real brokers with one registry: each on a thread of the test, or each in a process of its own."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from barnabas.broker import server
from barnabas.broker.cluster.member import ClusterMember
from barnabas.metadata.image import MetadataImage, PartitionImage
from barnabas.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing.ports import ReservedPort
from barnabas.types import BrokerId
from broker.peers.conftest import member, member_of
from broker.wire import Wire, on_loop, server_of
from stopped_processes import stop_process

__all__ = ["SOON_S", "Cluster", "ProcessCluster", "wait_for"]

T = TypeVar("T")
SOON_S = 60.0


def wait_for(condition: Callable[[], T], what: str = "the condition", timeout_s: float = SOON_S) -> T:
    """Returns what is true at last."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s:g} s: {found!r}"
        pause.wait(0.005)
    return found


def create_request(name: str, *replicas: Sequence[int]) -> CreateTopicsRequest:
    """Creates a topic by the replicas of each partition."""
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(ids)) for number, ids in enumerate(replicas)
    ]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


class Cluster:
    """Brokers of this process. The first one is the controller."""

    def __init__(self, directory: Path, node_ids: Sequence[int] = (1, 2), **settings: object) -> None:
        options = {name.replace("_", "."): value for name, value in settings.items()}
        self.brokers = {node_id: member(directory, node_id, **options) for node_id in node_ids}
        for node_id in node_ids:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        """Starts a broker, and waits until the controller has taken it in."""
        self.brokers[node_id].start()
        wait_for(lambda: self.on(node_id, lambda: self.member(node_id).joined().done()), f"broker {node_id}")

    def close(self) -> None:
        for broker in reversed(self.brokers.values()):
            broker.close()

    def server(self, node_id: int) -> server.Broker:
        return server_of(self.brokers[node_id])

    def member(self, node_id: int) -> ClusterMember:
        return member_of(self.brokers[node_id])

    def on(self, node_id: int, function: Callable[[], T]) -> T:
        """Runs a function on a broker's loop."""
        result: T = on_loop(self.brokers[node_id], function)
        return result

    def image(self, node_id: int) -> MetadataImage:
        return self.on(node_id, lambda: self.server(node_id).image)

    def partition(self, node_id: int, name: str, number: int = 0) -> PartitionImage:
        """Returns a partition as a broker knows it."""
        return self.image(node_id).topics[name].partitions[number]

    def create(self, name: str, *replicas: Sequence[int], by: int = 1) -> None:
        """Creates a topic by a request to a broker."""
        with Wire(self.brokers[by]) as wire:
            (topic,) = wire.ask(create_request(name, *replicas), 7).topics
        assert topic.error_code == 0, topic

    def fenced(self, seen_by: int) -> set[int]:
        return {node_id for node_id, broker in self.image(seen_by).brokers.items() if broker.fenced}

    @contextlib.contextmanager
    def stopped(self, *node_ids: int) -> Iterator[None]:
        """The loops of the brokers stand still, as those of stopped processes."""
        goes_on = threading.Event()
        for node_id in node_ids:
            stands = threading.Event()

            def stand(stands: threading.Event = stands) -> None:
                stands.set()
                assert goes_on.wait(SOON_S)

            self.server(node_id).loop.call_soon_threadsafe(stand)
            assert stands.wait(SOON_S)
        try:
            yield
        finally:
            goes_on.set()


class ProcessCluster:
    """Brokers that are processes: `barnabas serve --registry ...`."""

    def __init__(self, directory: Path, node_ids: Collection[int], **settings: object) -> None:
        self.directory = directory
        self.addresses: dict[int, tuple[str, int]] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = {node_id: ReservedPort() for node_id in node_ids}
        options = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 5}
        options |= {name.replace("_", "."): value for name, value in settings.items()}
        self._set = [f"--set={name}={value}" for name, value in options.items()]
        for node_id in node_ids:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        """Starts a broker, and waits until it says that it is ready."""
        ready = self.begin(node_id)
        process = self.processes[node_id]
        wait_for(lambda: ready.exists() or process.poll() is not None, f"broker {node_id}")
        assert process.poll() is None, self.log(node_id)
        host, _, number = ready.read_text().strip().rpartition(":")
        self.addresses[node_id] = host, int(number)

    def begin(self, node_id: int) -> Path:
        """Starts a broker. Returns the file that is there when it is ready."""
        ready = self.directory / f"ready{node_id}"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "barnabas", "serve", f"--node-id={node_id}"]
        command += [f"--registry={self.directory / 'registry.db'}", f"--data-dir={self.directory / str(node_id)}"]
        command += [f"--listen=127.0.0.1:{self._ports[node_id].number}", f"--ready-file={ready}", *self._set]
        with (self.directory / f"{node_id}.log").open("ab") as log:
            self.processes[node_id] = subprocess.Popen(command, stdout=log, stderr=log)
        return ready

    def log(self, node_id: int) -> str:
        return (self.directory / f"{node_id}.log").read_text()

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Sends a signal; returns after SIGSTOP when the process stands still."""
        if number == signal.SIGSTOP:
            stop_process(self.processes[node_id].pid)
        else:
            self.processes[node_id].send_signal(number)

    def kill(self, node_id: int) -> None:
        self.processes[node_id].kill()
        self.processes[node_id].wait()

    def stop(self, node_id: int) -> None:
        """Stops a broker in order."""
        self.signal(node_id, signal.SIGTERM)
        assert self.processes[node_id].wait(SOON_S) == 0, self.log(node_id)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for port in self._ports.values():
            port.release()

    def wire(self, node_id: int, timeout_s: float = SOON_S) -> Wire:
        return Wire(self.addresses[node_id], timeout_s)

    def ask(self, node_id: int, request: Any, version: int) -> Any:
        with self.wire(node_id) as wire:
            return wire.ask(request, version)

    def create(self, name: str, *replicas: Sequence[int], by: int) -> None:
        (topic,) = self.ask(by, create_request(name, *replicas), 7).topics
        assert topic.error_code == 0, topic

    def controller(self, seen_by: int) -> int:
        """Returns the node id of the controller, -1 if it is not live."""
        return int(self.ask(seen_by, DescribeClusterRequest(), 2).controller_id)

    def live(self, seen_by: int) -> set[int]:
        return {broker.broker_id for broker in self.ask(seen_by, DescribeClusterRequest(), 2).brokers}

    def partition(self, name: str, number: int = 0, *, seen_by: int) -> tuple[int, int, set[int]]:
        """Returns leader, leader epoch and ISR."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        found = self.ask(seen_by, wanted, 12).topics[0].partitions[number]
        return found.leader_id, found.leader_epoch, set(found.isr_nodes)


def active(image: MetadataImage) -> set[BrokerId]:
    return {node_id for node_id in image.brokers if image.is_active(node_id)}
