"""The rows of the clusters' table. One cluster runs at a time, in turn: A, B, A, B, each time in empty directories."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Producer

from bench import loads
from bench.brokers import BrokerFailed
from bench.cluster import failover, noise
from bench.cluster.nodes import Cluster
from bench.cluster.topics import QUICK_CLIENT, Topics
from bench.loads import Figures
from bench.suite import Measurements

PARTITIONS = 6
LATENCY_RATE = 1_000
FIRST_ACK_LIMIT_S = 180.0
START, IDLE, AFTER_LOAD, LATENCY = "start", "idle", "memory after load", "latency 1,000/s"


@dataclass(frozen=True, slots=True)
class Scale:
    """The amount of data in one round. The quick scale only shows that everything runs; its figures are no results."""

    rounds: int = 3
    repeats: int = 2
    """Of produce, consume and latency in each round."""
    records_100b: int = 2_000_000
    records_1kb: int = 500_000
    latency_s: int = 10
    rate: int = 1_000
    """Records a second during a failover."""
    failover_warm_s: float = 4.0
    settle_s: float = 4.0
    idle_s: float = 5.0
    wait_for_quiet_s: float = 5.0


QUICK = Scale(
    rounds=1,
    repeats=1,
    records_100b=100_000,
    records_1kb=20_000,
    latency_s=2,
    rate=300,
    failover_warm_s=1.0,
    settle_s=1.0,
    idle_s=1.0,
    wait_for_quiet_s=0.0,
)


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    size: int

    def records(self, scale: Scale) -> int:
        return scale.records_1kb if self.size > 100 else scale.records_100b


LOADS = (Load("100 B", 100), Load("1 KB", 1024))


class ClusterSuite(Measurements):
    """Runs the chosen rows on each cluster in turn."""

    def __init__(self, clusters: Sequence[Cluster], scale: Scale, rows: Sequence[str]) -> None:
        super().__init__(scale.rounds, rows)
        self.clusters = clusters
        self.scale = scale
        self.others: list[float] = []
        """The share of the machine that others used, in each measurement during which no broker died."""

    def run(self) -> None:
        for round_number in range(self.scale.rounds):
            for cluster in self.clusters:
                try:
                    self._visit(cluster, round_number)
                finally:
                    cluster.stop()
                    cluster.clear()

    def _visit(self, cluster: Cluster, round_number: int) -> None:
        def take(row: str, measure: Callable[[], Figures]) -> None:
            noise.wait_for_quiet(cluster, self.scale.wait_for_quiet_s)
            before = noise.now(cluster)
            if self.take(row, cluster.name, round_number, measure):
                self.others.append(noise.others_percent(before, noise.now(cluster)))

        cluster.start()
        if not self.take(START, cluster.name, round_number, lambda: first_ack(cluster)):
            return
        scale, topics = self.scale, Topics(cluster)
        if self.wanted(IDLE):
            take(IDLE, lambda: loads.idle(cluster, scale.settle_s, scale.idle_s))
        for load in LOADS:
            self._load(cluster, topics, load, take)
        if self.wanted(AFTER_LOAD) and cluster.bytes_moved:
            take(AFTER_LOAD, lambda: {"memory_MB": cluster.memory_mb()})
        if self.wanted(LATENCY):
            topics.create("latency", 1)
            seconds = scale.latency_s
            loads.produce_latency(cluster, "latency", LATENCY_RATE, seconds)  # warms a JIT
            for _ in range(scale.repeats):
                take(LATENCY, lambda: loads.produce_latency(cluster, "latency", LATENCY_RATE, seconds))
        for event in failover.EVENTS:
            if self.wanted(event.row):
                noise.wait_for_quiet(cluster, scale.wait_for_quiet_s)
                arguments = (cluster, event, round_number, scale.rate, scale.failover_warm_s)
                self.take(event.row, cluster.name, round_number, partial(failover.measure, *arguments))

    def _load(
        self, cluster: Cluster, topics: Topics, load: Load, take: Callable[[str, Callable[[], Figures]], None]
    ) -> None:
        produced, consumed = f"produce {load.name} acks=all", f"consume {load.name}"
        if not any(map(self.wanted, (produced, consumed))):
            return
        topic, count = f"load-{load.size}", load.records(self.scale)
        topics.create(topic, PARTITIONS)

        def produce(records: int) -> Figures:
            return loads.produce(cluster, topic, load.size, records, -1, "none")

        produce(count // 4)  # warms a JIT
        for _ in range(self.scale.repeats if self.wanted(produced) else 1):
            take(produced, lambda: produce(count))
        if self.wanted(consumed):
            for _ in range(self.scale.repeats):
                take(consumed, lambda: loads.consume(cluster, topic, load.size, count, PARTITIONS))


def first_ack(cluster: Cluster) -> Figures:
    """Seconds from the start of a cluster to the first record that was acknowledged by all replicas."""
    cluster.wait_for_port(cluster.ports, FIRST_ACK_LIMIT_S)
    Topics(cluster).create("first-ack", 1)
    outcome: list[tuple[object, float]] = []
    producer = Producer({"bootstrap.servers": cluster.address, "linger.ms": 0, "acks": "all", **QUICK_CLIENT})
    producer.produce("first-ack", b"x", callback=lambda error, _: outcome.append((error, time.perf_counter())))
    deadline = time.monotonic() + FIRST_ACK_LIMIT_S
    while not outcome and time.monotonic() < deadline:
        producer.poll(0.01)
    if not outcome or outcome[0][0]:
        raise BrokerFailed(f"{cluster.name}: no record acknowledged ({outcome or 'time out'})")
    return {"first_ack_s": outcome[0][1] - cluster.started_at}
