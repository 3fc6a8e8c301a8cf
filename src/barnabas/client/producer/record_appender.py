"""The way of one record into the open batch of its partition: choose, check, write. Compiled where that is possible.

This is the only code that runs for every record, so it calls nothing in Python on its way but what the caller asked
for. Everything else about a batch happens once a batch, in the accumulator.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import BytesWriter, write_i32_le
from librt.threading import Lock
from librt.time import time as wall_clock

from barnabas.client.arguments import INT32_MAX, INT64_MAX
from barnabas.client.producer.producer_batch import ProducerBatch, RecordHandle
from barnabas.records.bulk_kernel import RECORD_OVERHEAD, Rows, header_bytes, murmur2
from barnabas.records.compiled import i32, i64
from barnabas.records.kernel import write_record

__all__ = ["CLOSED", "NO_PARTITION", "NO_ROOM", "NO_TOPIC", "Lane", "RecordAppender", "Span"]

# why a record was not taken
NO_TOPIC: Final = 1
NO_PARTITION: Final = 2
NO_ROOM: Final = 3
CLOSED: Final = 4

BATCH_OVERHEAD: Final = 61
TURN_BYTES: Final = 256 * 1024
"""As much is made full before the sender has its turn: fewer, fuller requests. No batch waits for that longer than it
may linger."""
SPARE_BYTES: Final = 512 * 1024
NO_RECORDS: Final = BytesWriter()
NEVER_MS: Final = 1 << 62


class Lane:
    """One topic: its open batches by partition, and the partition that records without a key stick to."""

    def __init__(self, topic: str, partition_count: i64, sticky: i64) -> None:
        self.topic = topic
        self.partition_count: i64 = partition_count
        self.open: list[ProducerBatch | None] = [None for _ in range(partition_count)]
        self.sticky: i64 = sticky
        self.stuck_bytes: i64 = 0
        """What went to the sticky partition since it was chosen."""
        self.next_round: i64 = sticky
        self.touched: bool = True
        """Whether a record came since somebody set it to False."""


class Span:
    """Rows of a bulk call that stand one after another in a batch."""

    def __init__(self, batch: ProducerBatch, first: i64, row: i64, picks: BytesWriter | None) -> None:
        self.batch = batch
        self.first: i64 = first
        """The batch's record that is the first of them."""
        self.count: i64 = 0
        self.row: i64 = row
        """Number of their first row in the call."""
        self.picks: BytesWriter | None = picks
        """The numbers of the rows as little-endian 32 bits, less `row`; None: they follow one another."""


class RecordAppender:
    """See the module. Every method that takes records must be called with the owner's lock held, but for `send`."""

    def __init__(
        self,
        owner: Any,
        lock: Lock,
        batch_size: i64,
        linger_ms: i64,
        limit: i64,
        record_limit: i64,
        bulk_batch_size: i64,
    ) -> None:
        self.owner: Any = owner
        """Knows what takes longer: `batch_opened`, `choose_sticky`, `turn`, `send_slowly`, `refuse_size`, ..."""
        self.lock: Lock = lock
        """Taken by `send` for the moment of the append."""
        self.lanes: dict[str, Lane] = {}
        self.full: list[ProducerBatch] = []
        """Closed batches that the accumulator has not taken yet, in their order."""
        self.full_bytes: i64 = 0
        """Of those in `full`: a turn for every small batch would cost more than it brings."""
        self.batch_size: i64 = batch_size
        self.bulk_batch_size: i64 = bulk_batch_size
        self.spare: list[BytesWriter] = []
        """Buffers of batches that were taken, for the next ones: growing new ones costs as much as filling them."""
        self.spare_max: i64 = SPARE_BYTES // max(batch_size, bulk_batch_size, 1) + 1
        self.linger_ms: i64 = linger_ms
        self.limit: i64 = limit
        self.record_limit: i64 = record_limit
        self.used: i64 = 0
        """Bytes of buffer.memory in use."""
        self.why: i64 = 0
        """Why the last record was not taken."""
        self.starved: bool = False
        """Somebody waits for room: nothing should linger."""
        self.closed: bool = False
        self.plain: bool = True
        """No serializers, interceptors or partitioner of the caller's."""
        self.round_robin: bool = False
        self.ignore_keys: bool = False
        self.kick_at_ms: i64 = NEVER_MS
        """When lingering batches want to go, by the wall clock: an application that sends all the time sees to it
        itself."""
        self.sent: i64 = 0
        """Records taken."""

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
        """The synchronous producer's `send`. What is of the wrong kind is told by name, so nothing here says what kind
        it takes."""
        if not self.plain:
            slow: RecordHandle = self.owner.send_slowly(topic, value, key, partition, timestamp, headers, on_delivery)
            return slow
        with self.lock:  # Ctrl-C may come after a call of `acquire`
            handle = self.append(topic, value, key, partition, timestamp, headers, on_delivery)
            turn = self.wants_turn
        if handle is None:
            waited: RecordHandle = self.owner.send_slowly(topic, value, key, partition, timestamp, headers, on_delivery)
            return waited
        if turn:
            self.owner.turn()
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
        """Add a record to a batch; None if that cannot be now, and `why` says why not. Raises for a record that can
        never be taken."""
        if self.closed:
            self.why = CLOSED
            return None
        if not isinstance(topic, str):
            self.owner.refuse_topic(topic)
        lane = self.lanes.get(topic)
        if lane is None:
            self.why = NO_TOPIC
            return None
        lane.touched = True
        value_bytes: bytes | None = None
        if value is not None:
            value_bytes = value if isinstance(value, bytes) else self.owner.as_bytes("value", value)
        key_bytes: bytes | None = None
        if key is not None:
            key_bytes = key if isinstance(key, bytes) else self.owner.as_bytes("key", key)
        pairs: tuple[tuple[str, bytes | None], ...] = ()
        if headers is not None:
            pairs = self.owner.header_pairs(headers)
        now_ms: i64 = i64(wall_clock() * 1000.0)
        stamp: i64 = now_ms
        if timestamp is not None:
            if not isinstance(timestamp, int):
                timestamp = self.owner.as_timestamp(timestamp)
            try:
                stamp = timestamp
            except (ValueError, OverflowError):  # compiled: it has more than 64 bits
                stamp = -1
            if stamp < 0 or stamp > INT64_MAX:
                self.owner.as_timestamp(timestamp)
        index: i64 = -1
        if partition is not None:
            if not isinstance(partition, int):
                partition = self.owner.as_partition(partition)
            try:
                index = partition
            except (ValueError, OverflowError):
                index = -1
            if index < 0 or index > INT32_MAX:
                self.owner.as_partition(partition)
        if on_delivery is not None:
            self.owner.check_callback(on_delivery)
        batch = self.put(lane, value_bytes, key_bytes, index, stamp, pairs, self.batch_size)
        if batch is None:
            return None
        self._keep_time(now_ms)
        at: i64 = batch.count - 1
        if on_delivery is not None:
            batch.add_callback(at, stamp, on_delivery)
        return RecordHandle(batch, at, stamp)

    def _keep_time(self, now_ms: i64) -> None:
        """A record was added: see when a batch has lingered."""
        if now_ms >= self.kick_at_ms:
            self.kick_at_ms = 0
        elif self.kick_at_ms == NEVER_MS:
            self.kick_at_ms = now_ms + self.linger_ms if self.linger_ms > 0 else 0

    def put(
        self,
        lane: Lane,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: tuple[tuple[str, bytes | None], ...],
        batch_size: i64,
    ) -> ProducerBatch | None:
        """Write a record into the open batch of its partition (-1: choose one), which is full at `batch_size`; the
        batch, or None and `why`."""
        size: i64 = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += header_bytes(headers)
        if size > self.record_limit:
            self.owner.refuse_size(lane.topic, int(size))
        if self.used + size > self.limit and self.used > 0:
            self.why = NO_ROOM
            self.starved = True
            return None
        sticks: bool = False
        if partition < 0:
            if key is not None and not self.ignore_keys and not self.round_robin:
                partition = (murmur2(key) & 0x7FFFFFFF) % lane.partition_count
            elif self.round_robin:
                partition = lane.next_round % lane.partition_count
                lane.next_round += 1
            else:
                if lane.stuck_bytes >= batch_size:
                    self.unstick(lane)
                sticks = True
                partition = lane.sticky
        elif partition >= lane.partition_count:
            self.why = NO_PARTITION
            return None
        batch = lane.open[partition]
        if batch is not None and len(batch.records) + BATCH_OVERHEAD + size > batch_size:
            self.close(lane, batch)
            batch = None
            if sticks:
                self.unstick(lane)
                partition = lane.sticky
                batch = lane.open[partition]
                if batch is not None and len(batch.records) + BATCH_OVERHEAD + size > batch_size:
                    self.close(lane, batch)
                    batch = None
        if batch is None:
            batch = ProducerBatch(lane.topic, partition, timestamp, self.owner)
            if self.spare:
                batch.records = self.spare.pop()
            self.owner.batch_opened(batch)
            batch.size = BATCH_OVERHEAD
            self.used += BATCH_OVERHEAD
            lane.open[partition] = batch
        writer = batch.records
        before: i64 = len(writer)
        written: i64
        try:
            write_record(writer, batch.count, timestamp - batch.base_timestamp, key, value, headers)
            written = len(writer) - before
        except BaseException:  # Ctrl-C, where this is plain Python
            writer.truncate(before)
            raise
        # no call from here on, so that nothing comes between
        batch.count += 1
        if timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        batch.size += written
        self.used += written
        self.sent += 1
        if sticks:
            lane.stuck_bytes += written
        return batch

    def unstick(self, lane: Lane) -> None:
        """Another partition for records without a key."""
        lane.stuck_bytes = 0
        if lane.partition_count > 1:
            lane.sticky = self.owner.choose_sticky(lane)

    def close(self, lane: Lane, batch: ProducerBatch) -> None:
        """No more records: the accumulator takes it at its next turn."""
        batch.is_open = False
        lane.open[batch.partition] = None
        if batch.count == 0:  # its only record was interrupted
            self.used -= batch.size
            return
        self.full += [batch]  # no call: nothing comes between these steps
        self.full_bytes += batch.size

    def take_full(self) -> list[ProducerBatch]:
        """The closed batches; they are the accumulator's from now on."""
        full = self.full
        self.full = []
        self.full_bytes = 0
        self.kick_at_ms = NEVER_MS
        return full

    def take_records(self, batch: ProducerBatch) -> bytes:
        """What was written into a closed batch; the batch lets go of it."""
        writer = batch.records
        records = writer.getvalue()
        batch.records = NO_RECORDS
        if len(self.spare) < self.spare_max:
            writer.truncate(0)
            self.spare.append(writer)
        return records

    @property
    def wants_turn(self) -> bool:
        """Whether enough is closed, or something has lingered, for the sender to have its turn."""
        return self.full_bytes >= TURN_BYTES or self.kick_at_ms == 0

    # --- many records -----------------------------------------------------------------------------------------------

    def append_rows(self, lane: Lane, rows: Rows, start: i64, spans: list[Span]) -> int:
        """Add the rows from `start` on, until enough is full or there is no room (`why` says so); the next to add.
        What went where is added to `spans`."""
        self.why = 0
        if self.closed:
            self.why = CLOSED
            return start
        lane.touched = True
        scatters: bool = lane.partition_count > 1 and (rows.keyed or rows.placed or self.round_robin)
        latest: list[Span | None] = [None for _ in range(lane.partition_count)]
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
            batch = self.put(lane, rows.value(index), key, partition, stamp, pairs, self.bulk_batch_size)
            if batch is None:
                break
            span = latest[batch.partition]
            if span is None or span.batch is not batch:
                span = Span(batch, batch.count - 1, rows.base + index, BytesWriter() if scatters else None)
                latest[batch.partition] = span
                spans.append(span)
            picks = span.picks
            if picks is not None:
                write_i32_le(picks, i32(rows.base + index - span.row))
            span.count += 1
            index += 1
        if index > start:
            self._keep_time(now_ms)
        return index
