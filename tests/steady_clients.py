"""A producer, a member of a group, and perhaps a copier in transactions, that work while something happens to the
brokers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas import Consumer, ConsumerRecord, Producer  # not first by several threads: CPython 3.11 compiles in one
from barnabas.types import TopicPartition

__all__ = ["SteadyClients", "steady_clients"]

PATIENCE_S = 120


class SteadyClients:
    """What they have sent and received until now."""

    def __init__(self, bootstrap: str, topic: str, copies: str = "") -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._copies = copies
        self._over, self._all_sent = threading.Event(), threading.Event()
        readers = [self._consume, *([self._copy] if copies else [])]
        self._threads = [threading.Thread(target=self._run, args=[each]) for each in (self._produce, *readers)]
        self.sent: list[bytes] = []
        """The records that were acknowledged."""
        self.received: list[bytes] = []
        self.copied = 0
        """The number of records in transactions that were committed."""
        self.errors: list[Exception] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Ends the producer, and the consumer when it has everything."""
        self._over.set()
        self._threads[0].join()
        self._all_sent.set()
        for thread in self._threads[1:]:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(error)

    def _produce(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._over.is_set():
                value = b"%d" % len(self.sent)
                producer.send(self._topic, value, key=value).result(timeout=PATIENCE_S)
                self.sent.append(value)

    def _consume(self) -> None:
        with Consumer(
            self._topic, bootstrap_servers=self._bootstrap, group_id="steady", auto_offset_reset="earliest"
        ) as consumer:
            for records in self._polls(consumer, lambda: len(self.received)):
                self.received.extend(record.value for record in records)
                consumer.commit()

    def _copy(self) -> None:
        settings = {"bootstrap_servers": self._bootstrap}
        with (
            Producer(settings, transactional_id="copier") as producer,
            Consumer(
                self._topic,
                settings,
                group_id="copiers",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_auto_commit=False,
            ) as consumer,
        ):
            producer.init_transactions()
            for records in self._polls(consumer, lambda: self.copied):
                if not records:
                    continue
                with producer.transaction():
                    for record in records:
                        producer.send(self._copies, record.value, key=record.value)
                    offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                self.copied += len(records)

    def _polls(self, consumer: Consumer, done: Callable[[], int]) -> Iterator[list[ConsumerRecord]]:
        """Yields records until everything that was sent is done."""
        last = time.monotonic()
        while not self._all_sent.is_set() or done() < len(self.sent):
            records = consumer.poll(0.2)
            yield records
            last = time.monotonic() if records or not self._all_sent.is_set() else last
            assert time.monotonic() < last + PATIENCE_S, "the last records do not come"

    def committed_copies(self) -> list[bytes]:
        """Returns the records of the copies' topic as a reader of committed transactions gets them, sorted."""
        values: list[bytes] = []
        with Consumer(
            self._copies,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            ends: dict[TopicPartition, int] = {}
            while not ends or any(consumer.position(each) < end for each, end in ends.items()):
                values += [record.value for record in consumer.poll(0.2)]
                ends = ends or consumer.end_offsets(consumer.assignment())
        return sorted(values, key=int)


@contextmanager
def steady_clients(bootstrap: str, topic: str, copies: str = "") -> Iterator[SteadyClients]:
    """Yields clients at work. In the end nothing was refused, lost or seen twice. With a topic for `copies`, another
    one copies the records there in transactions."""
    clients = SteadyClients(bootstrap, topic, copies)
    clients.start()
    try:
        yield clients
    finally:
        clients.finish()
    if clients.errors:
        raise ExceptionGroup("clients at work", clients.errors)
    assert clients.sent
    assert sorted(clients.received, key=int) == clients.sent
    if copies:
        assert clients.committed_copies() == clients.sent
