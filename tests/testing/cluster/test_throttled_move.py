"""A throttled reassignment, with producers that do not notice."""

import random
import threading
import time

import pytest

from barnabas import Producer
from barnabas.cli.cluster.reassignment.throttle import remove_throttle, set_throttle
from barnabas.testing import Cluster
from barnabas.types import TopicPartition

RATE = 1_000_000
SIZE = 4_000_000
PATIENCE_S = 60.0


def fill(cluster: Cluster, topic: str) -> None:
    value = random.Random(1).randbytes(10_000)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(SIZE // len(value)):
            producer.send(topic, value)


class Writer:
    """A producer that waits for each acknowledgement by all replicas in sync."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.waits_s: list[float] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(cluster, topic))

    def _write(self, cluster: Cluster, topic: str) -> None:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
            while not self._done.is_set():
                begun = time.monotonic()
                producer.send(topic, b"small").result(PATIENCE_S)
                self.waits_s.append(time.monotonic() - begun)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def test_a_throttled_move_takes_its_time_and_producers_go_on() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t", assignments={0: [1, 2]})
        fill(cluster, "t")
        plan = {TopicPartition("t", 0): [1, 3]}
        set_throttle(cluster.admin, plan, RATE)
        with Writer(cluster, "t") as writer:
            begun, before = time.monotonic(), len(writer.waits_s)
            cluster.admin.alter_partition_reassignments({tp: list(replicas) for tp, replicas in plan.items()})
            cluster.wait_for(
                lambda: not cluster.admin.list_partition_reassignments(), PATIENCE_S, "the end of the move"
            )
            took_s = time.monotonic() - begun
        # less by one window and by one response that overdraws, more by what was written meanwhile
        assert SIZE / RATE - 2 <= took_s <= 4 * SIZE / RATE
        assert cluster.in_sync_replicas("t") == {1, 3}
        waits_s = sorted(writer.waits_s[before:])
        assert waits_s[len(waits_s) // 2] < 1, "producers wait for the copy"
        assert remove_throttle(cluster.admin).brokers == [1, 2, 3]
        assert len(cluster.records("t")) == SIZE // 10_000 + len(writer.waits_s)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_rate_of_zero_stops_a_copy_until_it_is_raised(side: str) -> None:
    with Cluster() as cluster:
        cluster.create_topic("t", assignments={0: [1, 2]}, configs={f"{side}.replication.throttled.replicas": "*"})
        fill(cluster, "t")
        rate = f"{side}.replication.throttled.rate"
        cluster.admin.alter_configs({("broker", ""): {rate: "0"}})
        cluster.admin.alter_partition_reassignments({("t", 0): [1, 2, 3]})
        with Writer(cluster, "t") as writer:
            cluster.wait_for(lambda: len(writer.waits_s) > 300, PATIENCE_S, "records meanwhile")
            assert cluster.in_sync_replicas("t") == {1, 2}
            cluster.admin.alter_configs({("broker", ""): {rate: None}})
            cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {1, 2, 3}, PATIENCE_S, "the end of the copy")
