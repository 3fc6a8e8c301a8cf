"""Producers and a consumer group that live through a broker's death, and know what they were promised."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

DELIVERY_TIMEOUT_MS = 180_000
POLL_EVERY = 50
PAUSE_S = 0.015  # longest pause per POLL_EVERY records: writing goes on at whatever moment the kill comes
COMMIT_EVERY = 500
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Stream = tuple[str, int]  # producer's name and partition: one ordered sequence of records


@dataclass(slots=True)
class Promises:
    """What producers were told: per stream how many were sent, and the offset of each acknowledged record."""

    sent: dict[Stream, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[Stream, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    errors: list[str] = field(default_factory=list)


def encode(producer: str, sequence: int, size: int) -> bytes:
    """``producer:sequence:`` and padding up to ``size``."""
    return f"{producer}:{sequence}:".encode().ljust(size, b".")


def decode(value: bytes) -> tuple[str, int]:
    producer, sequence, _ = value.split(b":", 2)
    return producer.decode(), int(sequence)


class Writer:
    """An idempotent producer in its own thread, acks=all, five requests in flight, several partitions."""

    def __init__(
        self, name: str, address: str, topic: str, partitions: int, rng: random.Random, promises: Promises
    ) -> None:
        self.name = name
        self._topic = topic
        self._partitions = partitions
        self._rng = rng
        self._promises = promises
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": rng.choice((0, 1, 5)),
                "batch.size": rng.choice((4_000, 50_000, 1_000_000)),
                "compression.type": rng.choice(CODECS),
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 20_000,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )

    def start(self, quota: int) -> None:
        """Writes up to ``quota`` records until :meth:`stop`."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._write, args=(quota,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops writing and waits until every record sent is acknowledged or failed."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        left = self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        if left:
            self._promises.errors.append(f"{self.name}: {left} records neither acknowledged nor failed")

    def _write(self, quota: int) -> None:
        for number in range(quota):
            if self._stop.is_set():
                return
            partition = self._rng.randrange(self._partitions)
            stream = (self.name, partition)
            sequence = self._promises.sent[stream]
            value = encode(self.name, sequence, self._rng.choices((40, 100, 1_000, 10_000), (20, 60, 15, 5))[0])
            while not self._stop.is_set():
                try:
                    self._producer.produce(
                        self._topic, value, key=self.name, partition=partition, on_delivery=self._on_delivery
                    )
                    self._promises.sent[stream] = sequence + 1
                    break
                except BufferError:
                    self._producer.poll(0.05)
            if not number % POLL_EVERY:
                self._producer.poll(self._rng.uniform(0.0, PAUSE_S))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._promises.errors.append(f"{self.name}: record not delivered: {error}")
            return
        value = message.value()
        assert value is not None
        _, sequence = decode(value)
        self._promises.acknowledged[self.name, message.partition() or 0][sequence] = message.offset() or 0

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._promises.errors.append(f"{self.name}: fatal: {error}")


class GroupReader:
    """One member of a consumer group that commits now and then and remembers which commits were acknowledged."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._topic = topic
        self._stop = threading.Event()
        self._progress = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self.first_offsets: dict[int, int] = {}
        self.next_offsets: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._read, name=group, daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([self._topic])
        self._thread.start()

    def wait_for_commit(self, timeout_s: float) -> None:
        """Returns once a commit was acknowledged; none in time is an error of the group."""
        if not self._progress.wait(timeout_s):
            self.errors.append(f"the group acknowledged no commit in {timeout_s:.0f} s")

    def stop(self) -> None:
        """Ends the member; what it had not committed is for the next one."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        unsaved = 0
        while not self._stop.is_set():
            for message in self._consumer.consume(200, 0.1):
                if message.error() is None:
                    self._saw(message.partition() or 0, message.offset() or 0)
                    unsaved += 1
            if unsaved >= COMMIT_EVERY:
                self._commit()
                unsaved = 0

    def _saw(self, partition: int, offset: int) -> None:
        """Offsets have to follow each other; the member may start over at a committed offset after a rebalance."""
        self.first_offsets.setdefault(partition, offset)
        expected = self.next_offsets.get(partition)
        restarted = offset == self.committed.get(partition)
        if expected is not None and offset > expected and not restarted:
            self.errors.append(f"partition {partition}: the group jumped from offset {expected} to {offset}")
        self.next_offsets[partition] = offset + 1

    def _commit(self) -> None:
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self.next_offsets.items()]
        try:
            answered = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # not acknowledged: nothing was promised
        for entry in answered or ():
            if entry.error is None:
                self.committed[entry.partition] = entry.offset
                self._progress.set()
