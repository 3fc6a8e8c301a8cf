"""Cost of a cluster as its partitions grow: change of metadata, failover of one broker, idle CPU, memory."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator, Sequence

from bench import loads
from bench.brokers import BrokerFailed
from bench.cluster.clients import SteadyProducer
from bench.cluster.nodes import Cluster
from bench.cluster.rows import first_ack
from bench.cluster.topics import PartitionState, Topics
from bench.loads import Figures

SIZES = (100, 1_000, 10_000)
TOPIC = "growth"
CHANGES = 7
WATCHED = 6
"""Partitions that a producer writes to during the failover."""
RATE = 300
LIMIT_S = 300.0


def points(cluster: Cluster, largest: int) -> Iterator[tuple[float, Figures]]:
    """Measures one topic of so many partitions with three replicas on a fresh cluster, size after size."""
    for size in sorted({min(size, largest) for size in SIZES}):
        try:
            cluster.start()
            first_ack(cluster)
            yield size, _measure(cluster, size)
        finally:
            cluster.stop()
            cluster.clear()


def _measure(cluster: Cluster, size: int) -> Figures:
    topics = Topics(cluster)
    began = time.perf_counter()
    topics.create(TOPIC, size, LIMIT_S, request_s=LIMIT_S)
    figures = {"create_s": time.perf_counter() - began}
    changes = []
    for number in range(CHANGES):
        began = time.perf_counter()
        topics.request(f"change-{number}", 1)
        changes.append((time.perf_counter() - began) * 1000)
    figures["metadata_change_ms"] = statistics.median(changes)
    idle = loads.idle(cluster, 3.0, 5.0)
    figures |= {"idle_cpu_percent": idle["cpu_percent"], "memory_MB": idle["memory_MB"]}
    return figures | _fail_over(cluster, topics)


def _fail_over(cluster: Cluster, topics: Topics) -> Figures:
    """Kills a broker that is not the controller: until others lead all that it led, as a client learns; the longest gap
    of a producer; until all replicas are in sync again."""
    producer = SteadyProducer(cluster.address, TOPIC, WATCHED, RATE)
    try:
        time.sleep(2)
        victim = next(node for node in range(len(cluster.ports)) if node != topics.controller())
        struck = time.perf_counter()
        cluster.signal(victim, signal.SIGKILL)
        while not leads_nothing(topics.partitions(TOPIC), victim):
            if time.perf_counter() - struck > LIMIT_S:
                raise BrokerFailed(f"{cluster.name}: broker {victim + 1} still leads after {LIMIT_S:.0f} s")
            time.sleep(0.01)
        failover_s = time.perf_counter() - struck
        cluster.bring_back(victim)
        topics.wait_in_sync(TOPIC, LIMIT_S)
        in_sync_s = time.perf_counter() - struck
        time.sleep(1)
        done = time.perf_counter()
    finally:
        producer.stop()
    gap_s = producer.gap_s(range(WATCHED), struck - 1, done)
    return {"failover_s": failover_s, "gap_s": gap_s, "in_sync_s": in_sync_s}


def leads_nothing(states: Sequence[PartitionState], node: int) -> bool:
    """Says whether each partition has a leader, and not on this broker. Without an answer nobody knows."""
    return bool(states) and all(state.leader not in (node, -1) for state in states)
