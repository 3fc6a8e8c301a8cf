"""A batch of records, and the handle of one of its records. Compiled where that is possible.

A record has no object of its own: its handle is a batch and an index, and only the caller keeps the handle.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from librt.strings import BytesWriter

from barnabas.connection.promise import Promise
from barnabas.records.batch import (
    BATCH_LENGTH_OVERHEAD,
    CHECKED,
    HEADER_SIZE,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compiled.mypyc_types import mypyc_attr

if TYPE_CHECKING:
    from mypy_extensions import i64

__all__ = ["OnDelivery", "ProducerBatch", "ProducerDriver", "RecordHandle", "RecordMetadata"]


class RecordMetadata(NamedTuple):
    """The place of a record. The offset is -1 if the broker did not return one (acks=0, or a duplicate)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


OnDelivery = Callable[[BaseException | None, RecordMetadata], object]


class ProducerDriver(Protocol):
    """Drives the network client of a producer, and waits in the calling thread or on an event loop."""

    def now(self) -> float:
        """Returns the time of the network client's clock."""

    def turn(self) -> None:
        """Lets the network client send the batches that are ready."""

    def batch_opened(self) -> None:
        """Schedules a turn for the linger of the first open batch. The caller holds the lock."""

    def send_slowly(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp: Any,
        headers: Any,
        on_delivery: Any,
        is_serialized: bool,
    ) -> RecordHandle:
        """Sends a record that `RecordAppender.send` cannot append at once: waits for memory, calls interceptors."""

    def wait_for_batch(self, batch: ProducerBatch, timeout: float | None) -> None:
        """Waits until the batch is done or was split. Raises OperationTimedOut."""

    def wait_for_promise(self, promise: Promise[Any], timeout: float | None) -> None:
        """Waits until the promise is settled. Raises OperationTimedOut."""

    def await_call(self, add_listener: Callable[[Callable[[], None]], None]) -> Any:
        """Returns an iterator for `__await__`, which waits until the listener that it adds by `add_listener` is
        called."""

    def add_callback(self, add: Callable[[Callable[[Callable[[], None]], None]], None]) -> None:
        """Calls `add` under the lock with a function that takes callbacks which are due, and then makes sure that these
        are called."""


class ProducerBatch:
    """Records of one partition. A batch is open while records are added, then closed, and done at the end."""

    def __init__(self, topic: str, partition: i64, base_timestamp: i64, driver: ProducerDriver) -> None:
        self.topic = topic
        self.partition: i64 = partition
        self.driver: ProducerDriver = driver
        """The driver that handles use to wait for the batch."""
        self.records: BytesWriter = BytesWriter()
        self.count: i64 = 0
        self.base_timestamp: i64 = base_timestamp
        self.max_timestamp: i64 = base_timestamp
        self.is_open: bool = True
        self.opened_at: float = 0.0
        # the state of the accumulator and the sender
        self.size: i64 = 0
        """The bytes of buffer.memory that the batch uses."""
        self.body: bytes | None = None
        """The compressed records."""
        self.compression: i64 = 0
        self.deadline: float = 0.0
        self.attempts: i64 = 0
        self.sent_at: float = 0.0
        self.retry_at: float = 0.0
        self.position: float = 0.0
        """The batch's place in the order of its partition, which never changes."""
        self.position_span: float = 1.0
        """The distance to the position of the next batch, which leaves room for halves of this one."""
        self.producer_id: i64 = -1
        self.producer_epoch: i64 = -1
        self.base_sequence: i64 = -1
        self.in_flight: bool = False
        self.maybe_written: bool = False
        """Whether the batch was sent, and no response tells whether it was written."""
        self.maybe_written_before: bool = False
        """The same, of the attempts before the last one."""
        self.failures: list[Any] | None = None
        """The last failed attempts (Attempt)."""
        self.done: bool = False
        self.base_offset: i64 = -1
        self.append_timestamp: i64 = -1
        self.error: BaseException | None = None
        self.record_errors: dict[int, BaseException] | None = None
        self.parts: list[ProducerBatch] | None = None
        """The batches that replaced this one when it was too large."""
        self.callbacks: list[tuple[int, int, Any]] | None = None
        """The callbacks of single records in their order: index, timestamp, function of the error and the metadata."""
        self.listeners: list[Any] | None = None
        """Functions without arguments that are called when the batch is done or split."""

    def header(self, transactional: bool) -> bytes:
        """Returns the 61 bytes in front of the body, checksum included."""
        body = self.body
        assert body is not None
        checked = CHECKED.pack(
            self.compression | (TRANSACTIONAL_FLAG if transactional else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )
        crc = crc32c(body, crc32c(checked))
        return PREFIX.pack(0, HEADER_SIZE - BATCH_LENGTH_OVERHEAD + len(body), -1, MAGIC, crc) + checked

    def add_callback(self, index: i64, timestamp: i64, callback: Any) -> None:
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, timestamp, callback))

    def add_listener(self, listener: Callable[[], None]) -> None:
        if self.listeners is None:
            self.listeners = []
        self.listeners.append(listener)

    def metadata(self, index: i64, timestamp: i64) -> RecordMetadata:
        offset: i64 = self.base_offset + index if self.base_offset >= 0 else -1
        stamped: i64 = self.append_timestamp if self.append_timestamp >= 0 else timestamp
        return RecordMetadata(self.topic, int(self.partition), int(offset), int(stamped))

    def error_of(self, index: i64) -> BaseException | None:
        errors = self.record_errors
        if errors is not None:
            return errors.get(index, self.error)
        return self.error

    def __repr__(self) -> str:
        state = "open" if self.is_open else "done" if self.done else "in flight" if self.in_flight else "waiting"
        return f"<batch of {self.count} records for {self.topic}-{self.partition}, {state}>"


@mypyc_attr(acyclic=True, free_list_len=1)
class RecordHandle:
    """A future of the result of one record, which costs next to nothing if it is not used."""

    def __init__(self, batch: ProducerBatch, index: i64, timestamp: i64) -> None:
        self._batch = batch
        self._index: i64 = index
        self._timestamp: i64 = timestamp

    def _current_batch(self) -> ProducerBatch:
        """Returns the batch that contains the record now: halves replace a batch that was too large."""
        while self._batch.parts is not None:
            for part in self._batch.parts:
                if self._index < part.count:
                    self._batch = part
                    break
                self._index -= part.count
        return self._batch

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        return self._batch.partition

    @property
    def offset(self) -> int:
        """The offset of the record; -1 until it is known, and with acks=0."""
        batch = self._current_batch()
        return batch.base_offset + self._index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970: the record's own timestamp, or the broker's if the topic uses LogAppendTime."""
        batch = self._current_batch()
        return batch.append_timestamp if batch.append_timestamp >= 0 else self._timestamp

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._current_batch().done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is acknowledged, and returns its metadata. Raises the error of the record;
        OperationTimedOut after `timeout` seconds, which has no effect on the record."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._current_batch().metadata(self._index, self._timestamp)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits like `result`, and returns the error; None if the record is acknowledged."""
        batch = self._current_batch()
        while not batch.done:
            batch.driver.wait_for_batch(batch, timeout)
            batch = self._current_batch()
        return batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[[RecordHandle], object]) -> None:
        """Calls `callback` with this handle once the record is done, on a thread of the producer; at once if it is
        already."""
        self._current_batch().driver.add_callback(lambda call: self._add_callback(callback, call))

    def _add_callback(
        self, callback: Callable[[RecordHandle], Any], call: Callable[[Callable[[], None]], None]
    ) -> None:
        batch = self._current_batch()
        if batch.done:
            call(lambda: callback(self))
        else:
            batch.add_callback(self._index, self._timestamp, lambda error, metadata: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._current_batch()
        while not batch.done:
            yield from batch.driver.await_call(batch.add_listener)
            batch = self._current_batch()
        return self.result()

    def __repr__(self) -> str:
        return f"<record {self.topic}-{self.partition} {'done' if self.done() else 'under way'}, offset {self.offset}>"
