"""Producers and consumers that live through a broker's death, and know what they were promised."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # documented place

from bench.brokers import BrokerFailed

READ_TIMEOUT_S = 60
CALL_TIMEOUT_S = 10  # of one call; what can be tried again is tried again
DELIVERY_TIMEOUT_MS = 180_000
POLL_EVERY = 50
PAUSE_S = 0.015  # longest pause per POLL_EVERY records: writing goes on at whatever moment the kill comes
COMMIT_EVERY = 500
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Stream = tuple[str, int]  # producer's name and partition: one ordered sequence of records


@dataclass(slots=True)
class Promises:
    """The acknowledgements of producers: for each stream the number of records sent, and the offset of each
    acknowledged one."""

    sent: dict[Stream, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[Stream, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    errors: list[str] = field(default_factory=list)


def client_settings(address: str) -> dict[str, str | int | float | bool]:
    """Any client's way to a broker that dies and comes back: it is looked for often, and nothing is said about it."""
    return {
        "bootstrap.servers": address,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        # librdkafka 2.16 that begins anew at its bootstrap address never sends the offsets of an open transaction.
        "metadata.recovery.strategy": "none",
        "log_level": 0,
    }


def patiently(call: Callable[[float], object]) -> None:
    """Calls again as long as the error says that this may help, as a broker that was killed comes back."""
    while True:
        try:
            call(CALL_TIMEOUT_S)
            return
        except KafkaException as error:
            if not told(error).retriable():
                raise


def told(error: KafkaException) -> KafkaError:
    """The error that librdkafka gave, with its flags."""
    reason = error.args[0]
    assert isinstance(reason, KafkaError)
    return reason


def create_topic(address: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient(client_settings(address))
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        future.result(60)


def wait_until_closed(address: str, topics: list[str]) -> dict[TopicPartition, tuple[int, int]]:
    """Waits until no transaction is open; answers (last stable offset, high watermark) where one stays."""
    admin = AdminClient(client_settings(address))
    described = {topic: admin.list_topics(topic, timeout=30).topics[topic].partitions for topic in topics}
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library's
    asked = {TopicPartition(topic, partition): latest for topic in topics for partition in described[topic]}
    deadline = time.monotonic() + READ_TIMEOUT_S
    while True:
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            answers = admin.list_offsets(dict(asked), isolation_level=level)
            ends.append({at: future.result(60).offset for at, future in answers.items()})
        behind = {at: (stable, ends[1][at]) for at, stable in ends[0].items() if stable != ends[1][at]}
        if not behind or time.monotonic() > deadline:
            return behind


def read(address: str, topic: str, partition: int, start: int = 0, *, committed: bool = False) -> Iterator[Message]:
    """The records of a partition from ``start`` to where it ends now; ``committed``: as read_committed shows them."""
    settings = {
        **client_settings(address),
        "group.id": "checker",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "check.crcs": True,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,  # the end is told only when a fetch brings nothing
    }
    consumer = Consumer(settings)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, start)])
        position, deadline = start, time.monotonic() + READ_TIMEOUT_S
        while position < end:
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{topic}-{partition} could not be read from {position} to {end}")
            for message in consumer.consume(1_000, 0.05):
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    position = offset + 1
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, offset)  # markers and aborted records may come last
                else:
                    raise BrokerFailed(f"{topic}-{partition} at {position}: {error}")
    finally:
        consumer.close()


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
                **client_settings(address),
                "enable.idempotence": True,
                "acks": "all",
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": rng.choice((0, 1, 5)),
                "batch.size": rng.choice((4_000, 50_000, 1_000_000)),
                "compression.type": rng.choice(CODECS),
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "queue.buffering.max.messages": 20_000,
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
                **client_settings(address),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
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
