"""Clients of a cluster that write and read through its faults, each in a thread of its own, and note what happens."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import barnabas
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition
from cluster.history import (
    Acknowledgement,
    Commit,
    CommitSeen,
    EndSeen,
    GenerationSeen,
    History,
    Record,
    Run,
    Stream,
    encode,
    record_of,
)

__all__ = [
    "BACKOFF",
    "Client",
    "ConfluentReader",
    "ConfluentWriter",
    "EndWatcher",
    "GroupMember",
    "GroupWatcher",
    "Reader",
    "Writer",
    "group_consumer",
]

DELIVERY_TIMEOUT_MS = 600_000
SIZES = ((60, 100, 1_000, 5_000), (30, 60, 9, 1))
BACKOFF: dict[str, Any] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}


def group_consumer(name: str, bootstrap: str, topic: str, group: str, **settings: Any) -> barnabas.Consumer:
    """Makes a member of a group that commits by itself."""
    return barnabas.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=name,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        **BACKOFF,
        **settings,
    )


class Client:
    """A thread that works until it is stopped; an exception that ends it earlier is a failure."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.failures: list[str] = []
        self.notes: deque[str] = deque(maxlen=5)
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def work(self) -> None:
        raise NotImplementedError

    def finish(self, timeout_s: float) -> None:
        """Stops the thread; one that does not end in time is a failure."""
        self.stopping.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.failures.append(f"{self.name} does not end")

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            before = f", after {'; '.join(self.notes)}" if self.notes else ""
            cause = f", because of {error.__cause__!r}" if error.__cause__ else ""
            self.failures.append(f"{self.name} ended: {error!r} ({place.filename}:{place.lineno}){cause}{before}")

    def note(self, error: BaseException) -> None:
        """Keeps an error that is no failure, for whoever looks for the cause of one."""
        self.notes.append(f"{time.strftime('%T')} {error!r}")


class Writer(Client):
    """A producer that sends a record to each partition, again and again: idempotent with acks=all, or with acks=1."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        partitions: Iterable[TopicPartition],
        history: History,
        rng: random.Random,
        *,
        interval_s: float,
        acks: str = "all",
    ) -> None:
        super().__init__(name, history)
        self._streams = [Stream(name, topic_partition) for topic_partition in partitions]
        self._rng, self._interval_s = rng, interval_s
        self._bootstrap, self._acks = bootstrap, acks
        self._pending = 0
        self.promised = acks == "all"
        if not self.promised:
            history.without_promise.add(name)
        self._send = self._sender()

    def _sender(self) -> Callable[[Stream, int, bytes], None]:
        producer = barnabas.Producer(
            bootstrap_servers=self._bootstrap,
            client_id=self.name,
            acks=self._acks,
            enable_idempotence=self.promised,
            linger_ms=self._rng.choice((0, 1, 5)),
            batch_size=self._rng.choice((1_000, 16_384)),
            compression_type=self._rng.choice(("none", "gzip", "lz4", "zstd")),
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            **BACKOFF,
        )
        self._flush: Callable[[float], object] = producer.flush
        self._close: Callable[[], object] = partial(producer.close, 0)

        def send(stream: Stream, sequence: int, value: bytes) -> None:
            at_s = time.monotonic()

            def told(error: BaseException | None, metadata: Any) -> None:
                self._told(stream, sequence, at_s, error, None if error else metadata.offset)

            topic, partition = stream.topic_partition
            producer.send(topic, value, key=self.name.encode(), partition=partition, on_delivery=told)

        return send

    def work(self) -> None:
        while not self.stopping.is_set():
            for stream in self._streams:
                sequence = self.history.sent[stream]
                self.history.sent[stream] = sequence + 1
                self._pending += 1
                self._send(stream, sequence, encode(self.name, sequence, self._rng.choices(*SIZES)[0]))
            self.stopping.wait(self._rng.uniform(0.0, 2 * self._interval_s))

    def _told(self, stream: Stream, sequence: int, sent_s: float, error: object, offset: int | None) -> None:
        self._pending -= 1
        if error is None:
            # A leader that remembers a batch, but not its offset, acknowledges it without one.
            told = Acknowledgement(-1 if offset is None else offset, sent_s, time.monotonic())
            self.history.acknowledged[stream][sequence] = told
        elif self.promised:
            self.failures.append(f"{self.name}: record {sequence} of {stream.topic_partition} failed: {error}")

    def finish(self, timeout_s: float) -> None:
        """All that was sent is acknowledged in time."""
        super().finish(timeout_s)
        try:
            self._flush(timeout_s)
        except Exception as error:  # librdkafka's fatal ones come as whatever its callbacks were about to return
            self.failures.append(f"{self.name}: flush: {error}")
        if self._pending and self.promised:
            self.failures.append(f"{self.name}: {self._pending} records are not acknowledged")
        self._close()
        del self._send, self._flush, self._close  # librdkafka's producer lives on as long as anybody knows it


class ConfluentWriter(Writer):
    """The same with librdkafka. `traced`: what it tells on standard error, in the words of its setting `debug`."""

    def __init__(self, *args: Any, traced: str = "", **options: Any) -> None:
        self._traced = traced
        super().__init__(*args, **options)

    def _sender(self) -> Callable[[Stream, int, bytes], None]:
        from confluent_kafka import Producer

        from workload import client_settings

        producer = Producer(
            {
                **client_settings(self._bootstrap),
                "client.id": self.name,
                "acks": self._acks,
                "enable.idempotence": self.promised,
                "linger.ms": self._rng.choice((0, 1, 5)),
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "error_cb": self._on_error,
                **({"debug": self._traced, "log_level": 7} if self._traced else {}),
            }
        )
        self._flush = producer.flush
        self._close = lambda: producer.poll(0)

        def send(stream: Stream, sequence: int, value: bytes) -> None:
            at_s = time.monotonic()

            def told(error: Any, message: Any) -> None:
                self._told(stream, sequence, at_s, error, message.offset())

            topic, partition = stream.topic_partition
            producer.produce(topic, value, key=self.name, partition=partition, on_delivery=told)
            producer.poll(0)

        return send

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(f"{self.name}: fatal: {error}")


class Reader(Client):
    """A consumer without a group that follows partitions from their beginnings."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        partitions: Iterable[TopicPartition],
        history: History,
        *,
        read_committed: bool = False,
    ) -> None:
        super().__init__(name, history)
        self._bootstrap = bootstrap
        self.read_committed = read_committed
        self._records: dict[TopicPartition, list[Record]] = {}
        for topic_partition in partitions:
            run = Run(name, topic_partition, read_committed, [])
            self._records[topic_partition] = run.records
            history.runs.append(run)

    def has_read(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Returns whether the record at ``offset``, or a later one, has come."""
        records = self._records[topic_partition]
        return bool(records) and records[-1].offset >= offset

    def work(self) -> None:
        with barnabas.Consumer(
            bootstrap_servers=self._bootstrap,
            client_id=self.name,
            auto_offset_reset="none",  # an offset that is out of range must not be passed over
            isolation_level="read_committed" if self.read_committed else "read_uncommitted",
            **BACKOFF,
        ) as consumer:
            consumer.assign([*self._records])
            for topic_partition in self._records:
                consumer.seek(topic_partition, 0)
            while not self.stopping.is_set():
                for record in consumer.poll(0.2):
                    topic_partition = TopicPartition(record.topic, record.partition)
                    self._records[topic_partition].append(
                        record_of(record.offset, record.leader_epoch, record.key, record.value)
                    )


class ConfluentReader(Reader):
    """The same with librdkafka."""

    def work(self) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as ConfluentTopicPartition

        from workload import client_settings

        consumer = Consumer(
            {
                **client_settings(self._bootstrap),
                "client.id": self.name,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
                "check.crcs": True,
            }
        )
        consumer.assign([ConfluentTopicPartition(*topic_partition, 0) for topic_partition in self._records])
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(500, 0.2):
                    error = message.error()
                    if error is not None:
                        if error.fatal() or error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                            raise AssertionError(f"{message.topic()}-{message.partition()}: {error}")
                        continue
                    topic_partition = TopicPartition(message.topic() or "", message.partition() or 0)
                    epoch = message.leader_epoch()
                    self._records[topic_partition].append(
                        record_of(message.offset() or 0, -1 if epoch is None else epoch, message.key(), message.value())
                    )
        finally:
            consumer.close()


class EndWatcher(Client):
    """Asks for the ends of partitions (their high watermarks), one after another."""

    def __init__(self, name: str, bootstrap: str, partitions: Iterable[TopicPartition], history: History) -> None:
        super().__init__(name, history)
        self._bootstrap, self._partitions = bootstrap, list(partitions)

    def work(self) -> None:
        with barnabas.Consumer(bootstrap_servers=self._bootstrap, client_id=self.name, **BACKOFF) as consumer:
            while not self.stopping.wait(0.05):
                for topic_partition in self._partitions:
                    began_s = time.monotonic()
                    try:
                        offset = consumer.end_offsets([topic_partition], timeout=1.0)[topic_partition]
                    except BarnabasError:
                        continue  # nobody leads it now
                    self.history.ends.append(EndSeen(topic_partition, offset, began_s, time.monotonic()))


class GroupMember(Client):
    """A member of a group that notes what it gets, commits now and then, and notes which commits were acknowledged."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, group: str, history: History, *, session_timeout_ms: int
    ) -> None:
        super().__init__(name, history)
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._session_timeout_ms = session_timeout_ms
        self._runs: dict[TopicPartition, list[Record]] = {}
        self._assigned_s: dict[TopicPartition, float] = {}
        self._unsaved: dict[TopicPartition, int] = {}
        self._generation_id = -1
        self._generation_s = time.monotonic()

    def work(self) -> None:
        with group_consumer(
            self.name,
            self._bootstrap,
            self._topic,
            self._group,
            session_timeout_ms=self._session_timeout_ms,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        ) as consumer:
            saved_s = time.monotonic()
            while not self.stopping.is_set():
                for record in consumer.poll(0.1):
                    self._got(record)
                if time.monotonic() > saved_s + 0.3:
                    self._save(consumer, [*self._unsaved])
                    saved_s = time.monotonic()
                self._note_generation(consumer)

    def _got(self, record: Any) -> None:
        topic_partition = TopicPartition(record.topic, record.partition)
        records = self._runs[topic_partition]
        if not records:
            began_s = self._assigned_s[topic_partition]
            self.history.commits_seen.append(
                CommitSeen(self._group, topic_partition, record.offset, began_s, time.monotonic())
            )
        records.append(record_of(record.offset, record.leader_epoch, record.key, record.value))
        self._unsaved[topic_partition] = record.offset + 1

    def _save(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        offsets = {
            topic_partition: self._unsaved[topic_partition]
            for topic_partition in partitions
            if topic_partition in self._unsaved
        }
        if not offsets:
            return
        try:
            consumer.commit(offsets, timeout=10.0)
        except BarnabasError:
            return  # not acknowledged: nothing was promised
        at_s = time.monotonic()
        for topic_partition, offset in offsets.items():
            self.history.commits.append(Commit(self._group, topic_partition, offset, at_s))
            if self._unsaved.get(topic_partition) == offset:
                del self._unsaved[topic_partition]

    def _note_generation(self, consumer: Any) -> None:
        """Notes the generation once the coordinator has stored it, which the assignment shows."""
        health = consumer.health()
        generation_id, now = health.generation_id, time.monotonic()
        if health.state == "stable" and generation_id not in (-1, self._generation_id):
            self.history.generations.append(
                GenerationSeen(self._group, self.name, generation_id, self._generation_s, now)
            )
            self._generation_id = generation_id
            self._generation_s = now

    def _on_assigned(self, _: Any, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            run = Run(self.name, topic_partition, False, [], self._group)
            self.history.runs.append(run)
            self._runs[topic_partition] = run.records
            self._assigned_s[topic_partition] = time.monotonic()

    def _on_revoked(self, consumer: Any, partitions: Iterable[TopicPartition]) -> None:
        self._save(consumer, list(partitions))
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Any, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            self._unsaved.pop(topic_partition, None)


class GroupWatcher(Client):
    """Asks for the committed offsets of a group."""

    def __init__(self, name: str, bootstrap: str, group: str, history: History) -> None:
        super().__init__(name, history)
        self._bootstrap, self._group = bootstrap, group

    def work(self) -> None:
        known: set[TopicPartition] = set()
        with barnabas.Admin(bootstrap_servers=self._bootstrap, client_id=self.name, **BACKOFF) as admin:
            while not self.stopping.wait(0.2):
                began_s = time.monotonic()
                try:
                    found = admin.list_group_offsets(self._group, timeout=2.0)
                except BarnabasError:
                    continue
                at_s = time.monotonic()
                known |= found.keys()
                for topic_partition in known:  # one that is no longer told has no commit any more
                    committed = found.get(topic_partition)
                    offset = -1 if committed is None else committed.offset
                    self.history.commits_seen.append(CommitSeen(self._group, topic_partition, offset, began_s, at_s))
