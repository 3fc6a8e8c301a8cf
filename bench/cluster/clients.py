"""Clients that go on during a failover and remember when they were served: a producer, a group's member, an observer of
the replicas."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.cluster.topics import QUICK_CLIENT, REPLICATION_FACTOR, Topics

VALUE_BYTES = 100
DIGITS = 12
"""A value begins with the number of its record in so many digits."""
COMMIT_INTERVAL_S = 0.2


class Gap(NamedTuple):
    seconds: float
    end: float


def longest_gap(times: Iterable[float], since: float, until: float) -> Gap:
    """Returns the longest time between `since` and `until` without any of the ascending times."""
    marks = [since, *(each for each in times if since <= each <= until), until]
    return max(Gap(later - earlier, later) for earlier, later in pairwise(marks))


class SteadyProducer:
    """Writes at a fixed rate, evenly to all partitions: idempotent, acks=all, linger 5 ms."""

    def __init__(self, address: str, topic: str, partitions: int, rate: int) -> None:
        self.topic = topic
        self.acknowledged: list[list[tuple[float, int]]] = [[] for _ in range(partitions)]
        """Of each partition: when, and which record."""
        self.failed = 0
        self.pauses: list[tuple[float, float]] = []
        """The turns of this process itself: the end, and how long it took. A long one is no fault of the brokers."""
        self._rate = rate
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                **QUICK_CLIENT,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number, began = 0, time.perf_counter()
        now = began
        while not self._ended.is_set():
            before, now = now, time.perf_counter()
            self.pauses.append((now, now - before))
            while number < (now - began) * self._rate:
                value = b"%0*d" % (DIGITS, number) + b"x" * (VALUE_BYTES - DIGITS)
                partition = number % len(self.acknowledged)
                try:
                    self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                except BufferError:
                    break
                number += 1
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            self.failed += 1
        else:
            self.acknowledged[message.partition() or 0].append((time.perf_counter(), int(value[:DIGITS])))

    def stop(self) -> None:
        """Awaits what is still to be acknowledged."""
        self._ended.set()
        self._thread.join()
        self.failed += self._producer.flush(120)

    def gaps(self, partitions: Iterable[int], since: float, until: float) -> list[Gap]:
        """The longest time that each of the partitions was without an acknowledgement."""
        return [longest_gap((at for at, _ in self.acknowledged[number]), since, until) for number in partitions]

    def gap_s(self, partitions: Iterable[int], since: float, until: float) -> float:
        return max((gap.seconds for gap in self.gaps(partitions, since, until)), default=0.0)

    def flows(self, since: float, within_s: float = 0.5) -> bool:
        """Says whether every partition was acknowledged a short time ago, and after `since`."""
        limit = max(since, time.perf_counter() - within_s)
        return all(each and each[-1][0] > limit for each in self.acknowledged)

    def longest_pause_s(self, since: float, until: float) -> float:
        return max((took for at, took in self.pauses if since <= at <= until), default=0.0)


class GroupMember:
    """The only member of its group: reads what is written and commits all the time."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self.group = group
        self.received: list[tuple[float, int, int]] = []
        """When, partition, offset."""
        self.committed: list[float] = []
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
                "on_commit": self._on_commit,
                **QUICK_CLIENT,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        if error is None:
            self.committed.append(time.perf_counter())

    def _run(self) -> None:
        asked_at = 0.0
        while not self._ended.is_set():
            messages = self._consumer.consume(500, 0.02)
            now = time.perf_counter()
            for message in messages:
                if message.error() is None:
                    self.received.append((now, message.partition() or 0, message.offset() or 0))
            if self.received and now - asked_at > COMMIT_INTERVAL_S:
                asked_at = now
                with contextlib.suppress(KafkaException):
                    self._consumer.commit(asynchronous=True)
        self._consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def flows(self, since: float) -> bool:
        return bool(self.committed) and self.committed[-1] > since

    def read_twice(self) -> int:
        places = [(partition, offset) for _, partition, offset in self.received]
        return len(places) - len(set(places))


class ReplicaObserver:
    """Asks for the replicas of a topic every few moments, and remembers when a partition last had too few in sync and
    when a broker that ended was first known to lead nothing."""

    def __init__(self, topics: Topics, topic: str, victim: int) -> None:
        self.short_at: float | None = None
        """When a partition lacked a replica the last time it was looked at; None if that was never seen."""
        self.moved_at: float | None = None
        self._topics = topics
        self._topic = topic
        self._victim = victim
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            states = self._topics.partitions(self._topic)
            now = time.perf_counter()
            if not states:
                continue
            if self.moved_at is None and all(state.leader not in (self._victim, -1) for state in states):
                self.moved_at = now
            if any(state.leader < 0 or state.in_sync < REPLICATION_FACTOR for state in states):
                self.short_at = now

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Anomalies:
    lost: int = 0
    doubled: int = 0
    disordered: int = 0


def find_anomalies(acknowledged: Sequence[Sequence[int]], read: Sequence[Sequence[int]]) -> Anomalies:
    """Compares the records that were acknowledged in each partition with those that are there."""
    lost = doubled = disordered = 0
    for promised, seen in zip(acknowledged, read, strict=True):
        lost += len(set(promised) - set(seen))
        doubled += len(seen) - len(set(seen))
        disordered += sum(later < earlier for earlier, later in pairwise(seen))
    return Anomalies(lost, doubled, disordered)


def read_back(address: str, topic: str, starts: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """The numbers of the records in each partition from its start to its end."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "check", "enable.auto.commit": False, **QUICK_CLIENT}
    )
    found: list[list[int]] = []
    for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
        consumer.assign([TopicPartition(topic, partition, start)])
        numbers: list[int] = []
        deadline = time.monotonic() + 60
        while start + len(numbers) < end and time.monotonic() < deadline:
            messages = consumer.consume(5000, 1)
            numbers += [int((each.value() or b"")[:DIGITS]) for each in messages if each.error() is None]
        found.append(numbers)
    consumer.close()
    return found
