"""One batch of records, and the handle that a caller has of one of its records. Compiled where that is possible.

A record has no object of its own: its handle is a batch and a number, and nobody keeps the handle but the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from librt.strings import BytesWriter

from barnabas.records.compiled import mypyc_attr

if TYPE_CHECKING:
    from mypy_extensions import i64

__all__ = ["ProducerBatch", "RecordHandle", "RecordMetadata"]


class RecordMetadata(NamedTuple):
    """Where a record stands. The offset is -1 where the broker did not say (acks=0, or a repeat it had already)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ProducerBatch:
    """Records for one partition: open while records are added, then on its way, then done."""

    def __init__(self, topic: str, partition: i64, base_timestamp: i64, owner: Any) -> None:
        self.topic = topic
        self.partition: i64 = partition
        self.owner: Any = owner
        """Who waits for it on behalf of handles: `wait_for_batch(batch, timeout)`, `await_batch(batch)`."""
        self.records: BytesWriter = BytesWriter()
        self.count: i64 = 0
        self.base_timestamp: i64 = base_timestamp
        self.max_timestamp: i64 = base_timestamp
        self.is_open: bool = True
        self.opened_at: float = 0.0
        # from here on it is the accumulator's and the sender's
        self.size: i64 = 0
        """Bytes that it holds of buffer.memory."""
        self.body: bytes | None = None
        """The records as they are sent, compressed."""
        self.compression: i64 = 0
        self.deadline: float = 0.0
        self.attempts: i64 = 0
        self.sent_at: float = 0.0
        self.retry_at: float = 0.0
        self.number: float = 0.0
        """Its place in the partition's order."""
        self.span: float = 1.0
        """Up to number + span no other batch has its place: the room for halves."""
        self.producer_id: i64 = -1
        self.producer_epoch: i64 = -1
        self.base_sequence: i64 = -1
        self.in_flight: bool = False
        self.unknown: bool = False
        """It was sent, and no answer says whether it was written."""
        self.reasons: list[Any] | None = None
        """What went wrong with the tries so far."""
        self.done: bool = False
        self.base_offset: i64 = -1
        self.append_timestamp: i64 = -1
        self.error: BaseException | None = None
        self.record_errors: dict[int, BaseException] | None = None
        self.parts: list[ProducerBatch] | None = None
        """The batches that replaced it when it was too large."""
        self.callbacks: list[tuple[int, int, Any]] | None = None
        """(index, timestamp, function of the error and the metadata) of single records, in their order."""
        self.listeners: list[Any] | None = None
        """Functions without arguments, called when it is done."""

    def add_callback(self, index: i64, timestamp: i64, callback: Any) -> None:
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, timestamp, callback))

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
    """What became of one record: a future that costs next to nothing if nobody looks at it."""

    def __init__(self, batch: ProducerBatch, index: i64, timestamp: i64) -> None:
        self._batch = batch
        self._index: i64 = index
        self._timestamp: i64 = timestamp

    def _home(self) -> ProducerBatch:
        """The batch that has the record now: halves replace one that was too large."""
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
        """-1 until it is known, and with acks=0."""
        batch = self._home()
        return batch.base_offset + self._index if batch.base_offset >= 0 else -1

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch: the record's own, or the broker's where the topic asks for LogAppendTime."""
        batch = self._home()
        return batch.append_timestamp if batch.append_timestamp >= 0 else self._timestamp

    def done(self) -> bool:
        """Acknowledged or failed."""
        return self._home().done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged. Raises what made it fail; OperationTimedOut after `timeout` seconds,
        which changes nothing about the record."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._home().metadata(self._index, self._timestamp)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`, but returns the failure; None if the record is acknowledged."""
        batch = self._home()
        while not batch.done:
            batch.owner.wait_for_batch(batch, timeout)
            batch = self._home()
        return batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[[RecordHandle], object]) -> None:
        """Call it with this handle once the record is done, on a thread of the producer's; at once if it is."""
        batch = self._home()
        batch.owner.call_when_done(batch, self, callback)

    def when_done(self, callback: Callable[[RecordHandle], object], later: Any) -> None:
        """`add_done_callback` with the lock held; what is due at once is appended to `later`."""
        batch = self._home()
        if batch.done:
            later.append(lambda: callback(self))
        else:
            batch.add_callback(self._index, self._timestamp, lambda error, metadata: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._home()
        while not batch.done:
            yield from batch.owner.await_batch(batch)
            batch = self._home()
        return self.result()

    def __repr__(self) -> str:
        return f"<record {self.topic}-{self.partition} {'done' if self.done() else 'under way'}, offset {self.offset}>"
