"""Topics of a cluster, and which broker is leader, controller or coordinator, asked of any cluster over the wire."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # documented place

from bench import wire
from bench.brokers import BrokerFailed
from bench.cluster.nodes import Cluster

REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2
T = TypeVar("T")
QUICK_CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
"""Settings with which a gap is the cluster's, not the client's own back-off."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int
    """The number of the broker, -1 if there is none."""
    in_sync: int


class Topics:
    """Asks and changes one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.address, **QUICK_CLIENT})

    def create(self, topic: str, partitions: int, limit_s: float = 180.0, request_s: float = 5.0) -> None:
        """Creates a topic with three replicas, as soon as there are as many brokers, and returns when all are in sync.

        A topic that is there already is left as it is.
        """
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.request(topic, partitions, request_s)
                break
            except KafkaException as error:
                if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                    break
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.03)
        self.wait_in_sync(topic, limit_s)

    def request(self, topic: str, partitions: int, timeout_s: float = 30.0) -> None:
        """Asks for a topic with three replicas once, and returns with the answer."""
        config = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
        made = NewTopic(topic, partitions, REPLICATION_FACTOR, config=config)
        self._admin.create_topics([made], request_timeout=timeout_s)[topic].result(timeout_s + 1)

    def partitions(self, topic: str) -> list[PartitionState]:
        """The state of each partition by number, as one broker knows it now; empty if none answers."""
        try:
            found = self._admin.list_topics(topic, timeout=5)
        except KafkaException:
            return []
        numbers = {broker.id: broker.port for broker in found.brokers.values()}
        described = found.topics[topic].partitions
        return [
            PartitionState(self._number(numbers.get(each.leader)), len(each.isrs))
            for _, each in sorted(described.items())
        ]

    def wait_in_sync(self, topic: str, limit_s: float = 180.0) -> None:
        """Returns when each partition has a leader and all replicas in sync."""
        states = _until(lambda: self.partitions(topic), _all_in_sync, limit_s)
        if not _all_in_sync(states):
            short = sum(state.in_sync < REPLICATION_FACTOR for state in states)
            raise BrokerFailed(f"{topic}: {short} of {len(states)} partitions not in sync after {limit_s:.0f} s")

    def elect_preferred(self, topic: str, partitions: int) -> None:
        """Lets the leaders be evenly on the brokers again, and returns when they are."""
        chosen = [TopicPartition(topic, number) for number in range(partitions)]
        with contextlib.suppress(KafkaException):  # all lead already
            self._admin.elect_leaders(ElectionType.PREFERRED, chosen).result(30)
        _until(lambda: {state.leader for state in self.partitions(topic)}, lambda led: len(led) == len(self._ports), 10)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """The high watermark of each partition."""
        consumer = Consumer({"bootstrap.servers": self._cluster.address, "group.id": "ends", "log_level": 0})
        deadline = time.monotonic() + 30
        try:
            while True:
                try:
                    return [
                        int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1])
                        for number in range(partitions)
                    ]
                except KafkaException:  # the broker that was asked does not know the topic yet
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
        finally:
            consumer.close()

    def controller(self) -> int:
        """The number of the active controller. Apache Kafka's Metadata names any broker, its quorum tells."""
        found = self._admin.list_topics(timeout=30)
        ports = {broker.id: broker.port for broker in found.brokers.values()}
        node_id = found.controller_id
        for port in ports.values():
            with contextlib.suppress(OSError, ValueError), socket.create_connection(("127.0.0.1", port), 3) as asked:
                node_id = wire.quorum_leader(asked)
                break
        return self._number(ports.get(node_id))

    def coordinator(self, group: str) -> int:
        """The number of the broker that coordinates a group."""
        described = self._admin.describe_consumer_groups([group])[group].result(30)
        return self._number(described.coordinator.port)

    @property
    def _ports(self) -> list[int]:
        return list(self._cluster.ports)

    def _number(self, port: int | None) -> int:
        return self._ports.index(port) if port in self._ports else -1


def _all_in_sync(states: list[PartitionState]) -> bool:
    return bool(states) and all(state.leader >= 0 and state.in_sync == REPLICATION_FACTOR for state in states)


def _until(ask: Callable[[], T], wanted: Callable[[T], bool], limit_s: float) -> T:
    """Asks until the answer is the wanted one, or the time is over; returns the last answer."""
    deadline = time.monotonic() + limit_s
    while not wanted(answer := ask()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return answer
