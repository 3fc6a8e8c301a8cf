"""Appends records to the open batches of their partitions: chooses the partition, checks the record, writes it.

Only this code runs for every record, and it is compiled where that is possible. The only Python code that it calls are
the application's serializers and partitioner. All other work on a batch is done once a batch, in the accumulator.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, Protocol

from librt.strings import BytesWriter, write_i32_le
from librt.threading import Lock
from librt.time import time as wall_clock

from barnabas.client.arguments import INT32_MAX, INT64_MAX, callback, time_ms, topic_name, whole
from barnabas.client.producer.bulk.rows import header_pairs
from barnabas.client.producer.producer_batch import ProducerBatch, ProducerDriver, RecordHandle
from barnabas.errors import MessageTooLarge
from barnabas.records.compiled.bulk_rows import RECORD_OVERHEAD, Rows, header_bytes, murmur2
from barnabas.records.compiled.mypyc_types import i32, i64
from barnabas.records.compiled.record_walk import write_record

__all__ = [
    "BUFFER_FULL",
    "CLOSED",
    "UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC",
    "AppendedRows",
    "RecordAppender",
    "TopicInfo",
    "partition_number",
]

# the reasons why a record was not appended
UNKNOWN_TOPIC: Final = 1
UNKNOWN_PARTITION: Final = 2
BUFFER_FULL: Final = 3
CLOSED: Final = 4

BATCH_OVERHEAD: Final = 61
TURN_BYTES: Final = 256 * 1024
"""The bytes in full batches that make the sender send: fewer, fuller requests. No batch waits for that longer than it
may linger."""
FREE_BUFFER_BYTES: Final = 512 * 1024
NO_RECORDS: Final = BytesWriter()
NEVER_MS: Final = 1 << 62


class TopicInfo:
    """A topic's open batches by partition, and the sticky partition, which gets the records without a key."""

    def __init__(self, topic: str, topic_id: bytes, partition_count: i64, sticky_partition: i64) -> None:
        self.topic = topic
        self.topic_id: bytes = topic_id
        """The last id that brokers told; zeros if they told none."""
        self.partition_count: i64 = partition_count
        self.open_batches: list[ProducerBatch | None] = [None for _ in range(partition_count)]
        """Never shorter than before, also if the topic has fewer partitions when it is created again."""
        self.sticky_partition: i64 = sticky_partition
        self.sticky_bytes: i64 = 0
        """The bytes that the sticky partition got since it was chosen."""
        self.next_round_robin: i64 = sticky_partition
        self.is_used: bool = True
        """Whether a record was sent since the producer last looked for idle topics."""


class AppendedRows:
    """Rows of a bulk call whose records follow one another in a batch."""

    def __init__(
        self, batch: ProducerBatch, first_record: i64, first_row: i64, row_numbers: BytesWriter | None
    ) -> None:
        self.batch = batch
        self.first_record: i64 = first_record
        """The index in the batch of the first row's record."""
        self.count: i64 = 0
        self.first_row: i64 = first_row
        """The number of the first row in the call."""
        self.row_numbers: BytesWriter | None = row_numbers
        """The numbers of the rows less `first_row`, as little-endian 32 bits; None if the rows follow one another."""


class BatchListener(Protocol):
    """The part of the accumulator that the appender calls."""

    def batch_opened(self, batch: ProducerBatch) -> None:
        """Notes that the appender has opened a batch."""


class Partitioner(Protocol):
    """Chooses partitions for records without a key."""

    def next_partition(self, topic: TopicInfo) -> int:
        """Returns the next sticky partition."""


class Serializer(Protocol):
    """Calls the serializers and the partitioner of the application."""

    def serialize(
        self, topic: str, partition_count: int, value: Any, key: Any, partition: Any
    ) -> tuple[Any, Any, int | None]:
        """Returns value, key and partition."""


class RecordAppender:
    """Appends records to open batches. All but `send` is called with the lock held."""

    def __init__(
        self,
        driver: ProducerDriver,
        lock: Lock,
        accumulator: BatchListener,
        partitioner: Partitioner,
        *,
        batch_size: i64,
        bulk_batch_size: i64,
        linger_ms: i64,
        buffer_memory: i64,
        record_size_max: i64,
        has_plugins: bool = False,
        serializer: Serializer | None = None,
        round_robin: bool = False,
        ignore_keys: bool = False,
    ) -> None:
        self.driver: ProducerDriver = driver
        self.lock: Lock = lock
        """The lock that `send` holds while it appends."""
        self.accumulator: BatchListener = accumulator
        self.partitioner: Partitioner = partitioner
        self.topics: dict[str, TopicInfo] = {}
        self.full_batches: list[ProducerBatch] = []
        """The closed batches that the accumulator has not taken yet, in their order."""
        self.full_bytes: i64 = 0
        """The bytes in `full_batches`, which trigger a turn: a turn for every small batch would cost too much."""
        self.batch_size: i64 = batch_size
        self.bulk_batch_size: i64 = bulk_batch_size
        self.free_buffers: list[BytesWriter] = []
        """The buffers of batches that were taken, for the next batches: new buffers would cost as much to grow as to
        fill."""
        self.free_buffers_max: i64 = FREE_BUFFER_BYTES // max(batch_size, bulk_batch_size, 1) + 1
        self.linger_ms: i64 = linger_ms
        self.buffer_memory: i64 = buffer_memory
        self.record_size_max: i64 = record_size_max
        self.used_bytes: i64 = 0
        """The bytes of buffer.memory in use."""
        self.refusal: i64 = 0
        """The reason why the last record was not appended."""
        self.exhausted: bool = False
        """Whether a caller waits for memory, so that no batch may linger."""
        self.closed: bool = False
        self.has_plugins: bool = has_plugins
        """Whether the application gave serializers, interceptors or a partitioner."""
        self.serializer: Serializer | None = serializer
        """Calls the application's serializers and partitioner, if there are no interceptors."""
        self.round_robin: bool = round_robin
        self.ignore_keys: bool = ignore_keys
        self.turn_due_ms: i64 = NEVER_MS
        """The time by the wall clock at which the first open batch has lingered; 0: now. An application that sends all
        the time makes the sender's turns itself."""
        self.appended: i64 = 0
        """The number of appended records."""

    def replace_lock(self) -> None:
        self.lock = Lock()

    # --- one record -------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: Any = None,
        timestamp: Any = None,
        headers: Any = None,
        on_delivery: Any = None,
    ) -> RecordHandle:
        """Sends a record of the synchronous producer. Undeclared types let the method check each argument itself."""
        if self.has_plugins:
            serializer = self.serializer
            info = self.topics.get(topic) if isinstance(topic, str) else None
            if serializer is None or info is None:
                return self.driver.send_slowly(topic, value, key, partition, timestamp, headers, on_delivery, False)
            value, key, partition = serializer.serialize(topic, info.partition_count, value, key, partition)
        with self.lock:  # after a call of `acquire`, Ctrl-C might keep it locked
            handle = self.append(topic, value, key, partition, timestamp, headers, on_delivery)
            turn = self.turn_due
        if handle is None:
            is_serialized = self.has_plugins
            return self.driver.send_slowly(topic, value, key, partition, timestamp, headers, on_delivery, is_serialized)
        if turn:
            self.driver.turn()
        return handle

    def append(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp: Any,
        headers: Any,
        on_delivery: Any,
    ) -> RecordHandle | None:
        """Appends a record to a batch. Returns None, with the reason in `refusal`, if no batch can take the record now.
        Raises for a record that can never be sent."""
        if self.closed:
            self.refusal = CLOSED
            return None
        if not isinstance(topic, str):
            topic_name("topic", topic)
        topic_info = self.topics.get(topic)
        if topic_info is None:
            self.refusal = UNKNOWN_TOPIC
            return None
        topic_info.is_used = True
        value_bytes: bytes | None = None
        if value is not None:
            value_bytes = value if isinstance(value, bytes) else as_bytes("value", value)
        key_bytes: bytes | None = None
        if key is not None:
            key_bytes = key if isinstance(key, bytes) else as_bytes("key", key)
        pairs: tuple[tuple[str, bytes | None], ...] = ()
        if headers is not None:
            pairs = header_pairs(headers)
        now_ms: i64 = i64(wall_clock() * 1000.0)
        stamp: i64 = now_ms
        if timestamp is not None:
            if not isinstance(timestamp, int):
                timestamp = time_ms("timestamp", timestamp)
            try:
                stamp = timestamp
            except (ValueError, OverflowError):  # compiled code raises this for more than 64 bits
                stamp = -1
            if stamp < 0 or stamp > INT64_MAX:
                time_ms("timestamp", timestamp)
        index: i64 = -1
        if partition is not None:
            if not isinstance(partition, int):
                partition = partition_number(partition)
            try:
                index = partition
            except (ValueError, OverflowError):
                index = -1
            if index < 0 or index > INT32_MAX:
                partition_number(partition)
        if on_delivery is not None:
            callback("on_delivery", on_delivery)
        batch = self.try_append(topic_info, value_bytes, key_bytes, index, stamp, pairs, self.batch_size)
        if batch is None:
            return None
        self._note_linger(now_ms)
        at: i64 = batch.count - 1
        if on_delivery is not None:
            batch.add_callback(at, stamp, on_delivery)
        return RecordHandle(batch, at, stamp)

    def _note_linger(self, now_ms: i64) -> None:
        """Notes the time at which the batch of a new record has lingered."""
        if now_ms >= self.turn_due_ms:
            self.turn_due_ms = 0
        elif self.turn_due_ms == NEVER_MS:
            self.turn_due_ms = now_ms + self.linger_ms if self.linger_ms > 0 else 0

    def try_append(
        self,
        topic: TopicInfo,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: tuple[tuple[str, bytes | None], ...],
        batch_size: i64,
    ) -> ProducerBatch | None:
        """Writes a record into the open batch of its partition (-1: the sticky one), which is full at `batch_size`.
        Returns the batch, or None with the reason in `refusal`."""
        size: i64 = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += header_bytes(headers)
        if size > self.record_size_max:
            self._refuse_size(topic.topic, int(size))
        if self.used_bytes + size > self.buffer_memory and self.used_bytes > 0:
            self.refusal = BUFFER_FULL
            self.exhausted = True
            return None
        sticks: bool = False
        if partition < 0:
            if key is not None and not self.ignore_keys and not self.round_robin:
                partition = (murmur2(key) & 0x7FFFFFFF) % topic.partition_count
            elif self.round_robin:
                partition = topic.next_round_robin % topic.partition_count
                topic.next_round_robin += 1
            else:
                if topic.sticky_bytes >= batch_size:
                    self.next_sticky_partition(topic)
                sticks = True
                partition = topic.sticky_partition
        elif partition >= topic.partition_count:
            self.refusal = UNKNOWN_PARTITION
            return None
        batch = topic.open_batches[partition]
        if batch is not None and len(batch.records) + BATCH_OVERHEAD + size > batch_size:
            self.close_batch(topic, batch)
            batch = None
            if sticks:
                self.next_sticky_partition(topic)
                partition = topic.sticky_partition
                batch = topic.open_batches[partition]
                if batch is not None and len(batch.records) + BATCH_OVERHEAD + size > batch_size:
                    self.close_batch(topic, batch)
                    batch = None
        if batch is None:
            batch = ProducerBatch(topic.topic, partition, timestamp, self.driver)
            if self.free_buffers:
                batch.records = self.free_buffers.pop()
            self.accumulator.batch_opened(batch)
            batch.size = BATCH_OVERHEAD
            self.used_bytes += BATCH_OVERHEAD
            topic.open_batches[partition] = batch
        writer = batch.records
        before: i64 = len(writer)
        written: i64
        try:
            write_record(writer, batch.count, timestamp - batch.base_timestamp, key, value, headers)
            written = len(writer) - before
        except BaseException:  # Ctrl-C, if this runs as plain Python
            writer.truncate(before)
            raise
        # no call from here on, so that no signal is handled in between
        batch.count += 1
        if timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        batch.size += written
        self.used_bytes += written
        self.appended += 1
        if sticks:
            topic.sticky_bytes += written
        return batch

    def _refuse_size(self, topic: str, size: int) -> NoReturn:
        raise MessageTooLarge(
            f"a record for {topic} has up to {size} bytes, max.request.size and buffer.memory allow"
            f" {self.record_size_max}"
        )

    def next_sticky_partition(self, topic: TopicInfo) -> None:
        """Chooses another partition for records without a key."""
        topic.sticky_bytes = 0
        if topic.partition_count > 1:
            topic.sticky_partition = self.partitioner.next_partition(topic)

    def close_batch(self, topic: TopicInfo, batch: ProducerBatch) -> None:
        """Closes a batch. The accumulator takes it at its next turn."""
        batch.is_open = False
        topic.open_batches[batch.partition] = None
        if batch.count == 0:  # the `send` of its only record was interrupted
            self.used_bytes -= batch.size
            return
        self.full_batches += [batch]  # without a call, so that no signal is handled between these steps
        self.full_bytes += batch.size

    def take_full_batches(self) -> list[ProducerBatch]:
        """Returns the closed batches, which now belong to the accumulator."""
        full = self.full_batches
        self.full_batches = []
        self.full_bytes = 0
        self.turn_due_ms = NEVER_MS
        return full

    def take_records(self, batch: ProducerBatch) -> bytes:
        """Returns the written records of a closed batch, and recycles its buffer."""
        writer = batch.records
        records = writer.getvalue()
        batch.records = NO_RECORDS
        if len(self.free_buffers) < self.free_buffers_max:
            writer.truncate(0)
            self.free_buffers.append(writer)
        return records

    @property
    def turn_due(self) -> bool:
        """Whether the sender must send: enough batches are full, or a batch has lingered."""
        return self.full_bytes >= TURN_BYTES or self.turn_due_ms == 0

    # --- many records -----------------------------------------------------------------------------------------------

    def append_rows(self, topic: TopicInfo, rows: Rows, start: i64, appended: list[AppendedRows]) -> int:
        """Appends the rows from `start` on, until enough batches are full or a row is refused (see `refusal`). Adds
        their places to `appended`. Returns the number of the next row."""
        self.refusal = 0
        if self.closed:
            self.refusal = CLOSED
            return start
        topic.is_used = True
        scatters: bool = topic.partition_count > 1 and (rows.keyed or rows.placed or self.round_robin)
        latest: list[AppendedRows | None] = [None for _ in range(topic.partition_count)]
        now_ms: i64 = i64(wall_clock() * 1000.0)
        stamp: i64 = now_ms
        partition: i64 = rows.to
        key: bytes | None = None
        pairs = rows.heads
        index: i64 = start
        while index < rows.count and self.full_bytes < TURN_BYTES:
            if rows.keyed:
                key = rows.key(index)
            if rows.placed:
                partition = rows.partition(index)
            if rows.stamped:
                stamp = rows.timestamp(index)
                if stamp < 0:
                    stamp = now_ms
            if rows.headed:
                pairs = rows.headers(index)
            batch = self.try_append(topic, rows.value(index), key, partition, stamp, pairs, self.bulk_batch_size)
            if batch is None:
                break
            group = latest[batch.partition]
            if group is None or group.batch is not batch:
                group = AppendedRows(batch, batch.count - 1, rows.base + index, BytesWriter() if scatters else None)
                latest[batch.partition] = group
                appended.append(group)
            row_numbers = group.row_numbers
            if row_numbers is not None:
                write_i32_le(row_numbers, i32(rows.base + index - group.first_row))
            group.count += 1
            index += 1
        if index > start:
            self._note_linger(now_ms)
        return index


def as_bytes(what: str, value: Any) -> bytes:
    """Converts a key or value that is not of type bytes. Raises TypeError."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"a record's {what} is bytes or None, not {type(value).__name__}; encode it, or set {what}_serializer"
    )


def partition_number(partition: object) -> int:
    """Checks the argument `partition`. Raises UsageError."""
    return whole("partition", partition, 0, INT32_MAX, "give a number from 0 on, or None to have one chosen")
