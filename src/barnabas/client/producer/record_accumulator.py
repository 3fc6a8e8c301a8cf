"""Keeps batches from their first record to their end: linger, compression, memory, order, expiry.

The appender fills batches. The accumulator closes them when they are full or have lingered, queues them by partition,
and completes them. A batch counts in buffer.memory from its first record to its end.
"""

import contextlib
import random
from collections import deque
from collections.abc import Iterable
from typing import Final

from librt.strings import BytesWriter
from librt.threading import Lock

from barnabas.client.producer.partition_batches import PartitionBatches
from barnabas.client.producer.partitioner import BuiltInPartitioner
from barnabas.client.producer.producer_batch import ProducerBatch, ProducerDriver
from barnabas.client.producer.record_appender import BATCH_OVERHEAD, RecordAppender, Serializer
from barnabas.client.settings import ProducerSettings
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.timers import NEVER
from barnabas.errors import BarnabasError, ClientClosed
from barnabas.records.compiled.record_walk import read_records, write_records
from barnabas.records.compression import CODEC_IDS, NONE, compress, decompress
from barnabas.types import TopicPartition

__all__ = ["RecordAccumulator"]

SINGLE_BATCH_BYTES: Final = 64 * 1024
BULK_BATCH_BYTES: Final = 256 * 1024
"""The batch size of bulk calls if batch.size is not set. Half of the work on a batch, in client and broker, does not
depend on its size, so calls that fill more than 16 KB gain by larger batches."""


class RecordAccumulator:
    """The batches of a producer. Callbacks of the application are called when the network client is at rest."""

    def __init__(
        self,
        client: NetworkClient,
        settings: ProducerSettings,
        driver: ProducerDriver,
        serializer: Serializer,
        lock: Lock,
        rng: random.Random,
    ) -> None:
        self.partitions: dict[tuple[str, int], PartitionBatches] = {}
        self.queued: dict[PartitionBatches, None] = {}
        """The partitions with batches that are not in flight."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """The batches that are closed and not done."""
        self.flushing = 0
        """The number of calls that wait for all batches; meanwhile no batch lingers."""
        self.failed = 0
        """The number of records that were given up."""
        self.closed = False
        self._codec = CODEC_IDS[settings.compression_type]
        self._level = settings.compression_level
        self._linger_s = settings.linger_ms / 1000
        self._delivery_timeout_s = settings.delivery_timeout_ms / 1000
        self._driver = driver
        self._completions = client.completions
        self._opened: deque[ProducerBatch] = deque()
        self._by_age: deque[ProducerBatch] = deque()
        """The closed batches by age; the oldest that is not done is the next to expire."""
        buffer_memory = max(settings.buffer_memory, 1)
        self.appender = RecordAppender(
            driver,
            lock,
            self,
            BuiltInPartitioner(client, settings, self.partitions, rng),
            batch_size=settings.batch_size_of(SINGLE_BATCH_BYTES),
            bulk_batch_size=settings.batch_size_of(BULK_BATCH_BYTES),
            linger_ms=settings.linger_ms,
            buffer_memory=buffer_memory,
            record_size_max=min(settings.max_request_size, buffer_memory),
            has_plugins=bool(
                settings.key_serializer
                or settings.value_serializer
                or settings.interceptor_classes
                or callable(settings.partitioner_class)
            ),
            serializer=None if settings.interceptor_classes else serializer,
            round_robin=settings.partitioner_class == "round_robin",
            ignore_keys=settings.partitioner_ignore_keys,
        )

    def accept_records(self, accepts: bool) -> None:
        """Allows or forbids the appender to take records. A closed accumulator takes none."""
        self.appender.closed = self.closed or not accepts

    def close(self) -> None:
        """Takes no further records."""
        self.closed = self.appender.closed = True

    def abandon(self) -> None:
        """Gives up all batches in a forked child: the parent sends them, and its threads may have held the lock."""
        self.close()
        self.appender.replace_lock()
        error = ClientClosed("the record is the parent process's to send; this one was forked from it")
        for batch in self.all_batches():
            batch.error = error
            batch.done = True
            for listener in batch.listeners or ():
                with contextlib.suppress(RuntimeError):  # the listener may belong to a loop that is closed
                    listener()

    # --- from open to queued ----------------------------------------------------------------------------------------

    def batch_opened(self, batch: ProducerBatch) -> None:
        batch.opened_at = self._driver.now()
        self._opened.append(batch)
        if len(self._opened) == 1:
            self._driver.batch_opened()

    def queue_ready(self, now: float) -> None:
        """Closes the batches that have lingered, and queues all closed ones."""
        opened = self._opened
        hurry = self.flushing > 0 or self.appender.exhausted
        while opened and (not opened[0].is_open or hurry or opened[0].opened_at + self._linger_s <= now):
            batch = opened[0]
            if batch.is_open:
                topic = self.appender.topics[batch.topic]
                if topic.open_batches[batch.partition] is batch:
                    self.appender.close_batch(topic, batch)
                else:  # an interrupted `send` has made it: no record is appended to it
                    batch.is_open = False
            opened.popleft()
        for batch in self.appender.take_full_batches():
            self._queue(batch)

    def _queue(self, batch: ProducerBatch) -> None:
        body = self.appender.take_records(batch)
        if self._codec != NONE:
            body = compress(self._codec, body, self._level)
            size = BATCH_OVERHEAD + len(body)
            self.appender.used_bytes += size - batch.size
            batch.size = size
        batch.body = body
        batch.compression = self._codec
        batch.deadline = batch.opened_at + self._delivery_timeout_s
        partition = self.partitions.get((batch.topic, batch.partition))
        if partition is None:
            topic_partition = TopicPartition(batch.topic, batch.partition)
            partition = self.partitions[topic_partition] = PartitionBatches(topic_partition)
        partition.add(batch)
        self.queued[partition] = None
        self.incomplete[batch] = None
        self._by_age.append(batch)

    def put_back(self, partition: PartitionBatches, batches: list[ProducerBatch]) -> None:
        """Queues batches again, at their places in the order."""
        partition.put_back(batches)
        self.queued[partition] = None

    @property
    def has_queued_all(self) -> bool:
        """Whether `queue_ready` has taken all full batches."""
        return not self.appender.full_batches

    def next_deadline(self) -> float:
        """Returns the time of the next batch that has lingered or expires."""
        opened = self._opened
        while opened and not opened[0].is_open:
            opened.popleft()
        due = opened[0].opened_at + self._linger_s if opened else NEVER
        oldest = self._oldest()
        return due if oldest is None else min(due, oldest.deadline)

    def _oldest(self) -> ProducerBatch | None:
        by_age = self._by_age
        while by_age and by_age[0] not in self.incomplete:
            by_age.popleft()
        return by_age[0] if by_age else None

    def is_idle(self) -> bool:
        """Whether no batch is open, queued or in flight."""
        return (
            not self.incomplete and not self.appender.full_batches and not any(batch.is_open for batch in self._opened)
        )

    def all_batches(self) -> Iterable[ProducerBatch]:
        """Returns the batches that are not done, also open ones. An open batch without a record, which an interrupted
        `send` leaves, is not included."""
        opened = (batch for batch in self._opened if batch.is_open and batch.count)
        return [*self.incomplete, *self.appender.full_batches, *opened]

    # --- the end of a batch -----------------------------------------------------------------------------------------

    def expired(self, now: float) -> list[ProducerBatch]:
        """Returns the batches whose delivery.timeout.ms is over."""
        oldest = self._oldest()
        if oldest is None or oldest.deadline > now:
            return []
        return [batch for batch in self.incomplete if batch.deadline <= now]

    def complete(self, batch: ProducerBatch, error: BaseException | None) -> None:
        """Completes a batch, whose offsets are set already."""
        batch.error = error
        batch.done = True
        batch.body = None
        del self.incomplete[batch]
        self.appender.used_bytes -= batch.size
        self.appender.exhausted = False
        self._notify(batch)

    def fail(self, batch: ProducerBatch, error: BarnabasError) -> None:
        """Completes a batch that is given up."""
        partition = self.partitions[batch.topic, batch.partition]
        if batch in partition.queue:
            partition.queue.remove(batch)
            if not partition.queue:
                self.queued.pop(partition, None)
        if not batch.in_flight:
            partition.leave_gap(batch)
        self.failed += batch.count
        self.complete(batch, error)

    def fail_queued(self, error: BarnabasError) -> None:
        """Gives up all batches that are not in flight."""
        for batch in self.close_batches():
            if not batch.in_flight:
                self.fail(batch, error)

    def close_batches(self) -> list[ProducerBatch]:
        """Closes and queues the open batches. Returns all batches that are not done."""
        self.flushing += 1
        self.queue_ready(NEVER)
        self.flushing -= 1
        return list(self.incomplete)

    def split(self, partition: PartitionBatches, batch: ProducerBatch) -> None:
        """Replaces a batch that is too large for its topic by two halves, which take over its handles and callbacks."""
        batch.parts = halves = _halves(batch, self._level)
        del self.incomplete[batch]
        self.appender.used_bytes -= batch.size
        for half in halves:
            self.appender.used_bytes += half.size
            self.incomplete[half] = None
            self._by_age.appendleft(half)
        for index, timestamp, callback in batch.callbacks or ():
            for half in halves:
                if index < half.count:
                    half.add_callback(index, timestamp, callback)
                    break
                index -= half.count
        batch.callbacks = None
        self._notify(batch)
        self.put_back(partition, halves)

    def _notify(self, batch: ProducerBatch) -> None:
        listeners, batch.listeners = batch.listeners, None
        for listener in listeners or ():
            listener()
        if batch.callbacks is not None:
            self._completions.append(lambda: _call_back(batch))


def _call_back(batch: ProducerBatch) -> None:
    callbacks, batch.callbacks = batch.callbacks, None
    failure: BaseException | None = None
    for index, timestamp, callback in callbacks or ():
        try:
            callback(batch.error_of(index), batch.metadata(index, timestamp))
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _halves(batch: ProducerBatch, level: int | None) -> list[ProducerBatch]:
    """Returns two batches with the halves of the records. Order, deadline and sequences stay the same."""
    assert batch.body is not None
    body = decompress(batch.compression, batch.body)
    records = read_records(body, 0, batch.count, 0, batch.base_timestamp, None)
    middle = len(records) // 2
    halves = []
    for start, part in ((0, records[:middle]), (middle, records[middle:])):
        half = ProducerBatch(batch.topic, batch.partition, part[0].timestamp, batch.driver)
        out = BytesWriter()
        half.max_timestamp = write_records(out, part, 0, part[0].timestamp)
        body = out.getvalue()
        half.body = body if batch.compression == NONE else compress(batch.compression, body, level)
        half.count = len(part)
        half.size = BATCH_OVERHEAD + len(half.body)
        half.compression = batch.compression
        half.is_open = False
        half.opened_at = batch.opened_at
        half.deadline = batch.deadline
        half.sent_at = batch.sent_at
        half.producer_id = batch.producer_id
        half.producer_epoch = batch.producer_epoch
        half.failures = batch.failures
        half.position_span = batch.position_span / 2
        half.position = batch.position + (half.position_span if start else 0.0)
        if batch.base_sequence >= 0:
            half.base_sequence = (batch.base_sequence + start) & 0x7FFFFFFF
        halves.append(half)
    return halves
