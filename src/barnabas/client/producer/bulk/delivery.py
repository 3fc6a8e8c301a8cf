"""The future of a bulk call: the offsets of its records, and the rows that failed."""

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.client.producer.producer_batch import ProducerBatch, ProducerDriver
from barnabas.client.producer.record_appender import AppendedRows
from barnabas.connection.promise import Promise
from barnabas.errors import FailedRows, RecordsFailed

__all__ = ["Delivery", "SentRange"]


class SentRange(NamedTuple):
    """Records that follow one another in a partition. The offset is -1 if the broker did not return one (acks=0, or a
    duplicate)."""

    topic: str
    partition: int
    offset: int
    """The offset of the first record."""
    record_count: int


class Delivery:
    """A future of the records of one `send_many` or `send_table`."""

    def __init__(self, driver: ProducerDriver, topic: str, count: int) -> None:
        self.topic = topic
        self.count = count
        """The number of the call's records."""
        self._driver = driver
        self._left = count
        self._sent: dict[int, list[SentRange]] = {}
        self._failed: list[FailedRows] = []
        self._promise: Promise[None] = Promise()
        self._settle(0)

    def done(self) -> bool:
        """Whether all records are acknowledged or have failed."""
        return self._promise.done

    def result(self, timeout: float | None = None) -> tuple[SentRange, ...]:
        """Waits until all records are acknowledged. Returns their partitions and offsets, in this order. Raises
        RecordsFailed if some failed; OperationTimedOut after `timeout` seconds, which has no effect on the records."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._ranges()

    def exception(self, timeout: float | None = None) -> RecordsFailed | None:
        """Waits like `result`, and returns the error; None if all records are acknowledged."""
        if not self._promise.done:
            self._driver.wait_for_promise(self._promise, timeout)
        return self._failure()

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Calls `callback` with this delivery once it is done, on a thread of the producer; at once if it is
        already."""
        due: Callable[[Delivery], Any] = callback
        self._driver.add_callback(lambda call: self._promise.on_done(lambda _: call(lambda: due(self))))

    def __await__(self) -> Generator[Any, None, tuple[SentRange, ...]]:
        if not self._promise.done:
            yield from self._driver.await_call(lambda listener: self._promise.on_done(lambda _: listener()))
        return self.result()

    def __repr__(self) -> str:
        return f"<{self.count} records for {self.topic}, {self._left} of them under way, {len(self._failed)} failures>"

    def _failure(self) -> RecordsFailed | None:
        return RecordsFailed(self, tuple(_joined(self._failed)), self._ranges()) if self._failed else None

    def _ranges(self) -> tuple[SentRange, ...]:
        return tuple(part for partition in sorted(self._sent) for part in _merged(self._sent[partition]))

    # --- for the producer, under its lock ---------------------------------------------------------------------------

    def follow(self, rows: AppendedRows) -> None:
        """Waits for the batch that has these rows."""
        row_numbers = None if rows.row_numbers is None else rows.row_numbers.getvalue()
        self._follow(rows.batch, rows.first_record, rows.count, rows.first_row, row_numbers)

    def _follow(self, batch: ProducerBatch, first: int, count: int, row: int, row_numbers: bytes | None) -> None:
        if batch.parts is not None:
            self._follow_parts(batch.parts, first, count, row, row_numbers)
        elif batch.done:
            self._take_in(batch, first, count, row, row_numbers)
        else:
            batch.add_listener(lambda: self._follow(batch, first, count, row, row_numbers))

    def _follow_parts(
        self, parts: list[ProducerBatch], first: int, count: int, row: int, row_numbers: bytes | None
    ) -> None:
        """Waits for the batches that have replaced one that was too large."""
        for part in parts:
            here = min(part.count - first, count)
            if here > 0:
                self._follow(part, first, here, row, None if row_numbers is None else row_numbers[: 4 * here])
                count -= here
                first = 0
                if row_numbers is None:
                    row += here
                else:
                    row_numbers = row_numbers[4 * here :]
            else:
                first -= part.count

    def _take_in(self, batch: ProducerBatch, first: int, count: int, row: int, row_numbers: bytes | None) -> None:
        if batch.error is None:
            offset = batch.base_offset + first if batch.base_offset >= 0 else -1
            ranges = self._sent.setdefault(batch.partition, [])
            ranges.append(SentRange(batch.topic, batch.partition, offset, count))
            if len(ranges) > 1:
                ranges[-2:] = _merged(ranges[-2:])
        else:
            self._failed += _failures(
                batch, first, range(row, row + count) if row_numbers is None else _row_numbers(row, row_numbers)
            )
        self._settle(count)

    def _settle(self, count: int) -> None:
        self._left -= count
        if not self._left:
            self._promise.resolve(None)

    def give_up(self, row: int, error: BaseException) -> RecordsFailed:
        """Fails the rows from `row` on, which are in no batch."""
        rest = range(row, self.count)
        self._failed.append(FailedRows(self.topic, -1, rest, error))
        failure = RecordsFailed(self, tuple(_joined(self._failed)), self._ranges())
        self._settle(len(rest))
        return failure


def _failures(batch: ProducerBatch, first: int, rows: Sequence[int]) -> Iterator[FailedRows]:
    """Returns the failures of rows whose records are in a failed batch, from index `first` on. A broker may refuse
    single records of a batch by index."""
    start = 0
    for index in range(1, len(rows)) if batch.record_errors is not None else ():
        if batch.error_of(first + index) is not batch.error_of(first + start):
            yield FailedRows(batch.topic, batch.partition, rows[start:index], batch.error_of(first + start))
            start = index
    yield FailedRows(batch.topic, batch.partition, rows[start:], batch.error_of(first + start))


def _row_numbers(row: int, row_numbers: bytes) -> Sequence[int]:
    """Returns the numbers of rows, as a range if they follow one another."""
    rows = tuple(row + step for (step,) in struct.iter_unpack("<i", row_numbers))
    return range(rows[0], rows[-1] + 1) if rows[-1] - rows[0] == len(rows) - 1 else rows


def _joined(failed: list[FailedRows]) -> Iterator[FailedRows]:
    """Returns the failures in the order of their first rows. Neighbours with the same error are merged."""
    last: FailedRows | None = None
    for part in sorted(failed, key=lambda part: part.rows[0]):
        if last is not None and _continues(last, part):
            last = last._replace(rows=range(last.rows[0], part.rows[-1] + 1))
        else:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last


def _continues(last: FailedRows, part: FailedRows) -> bool:
    return (
        isinstance(last.rows, range)
        and isinstance(part.rows, range)
        and last.rows[-1] + 1 == part.rows[0]
        and last.partition == part.partition
        and (last.error is part.error or (type(last.error) is type(part.error) and str(last.error) == str(part.error)))
    )


def _merged(ranges: list[SentRange]) -> Iterator[SentRange]:
    """Returns the ranges of a partition in the order of offsets. Neighbours are merged."""
    last: SentRange | None = None
    for part in sorted(ranges, key=lambda part: part.offset):
        if last is not None and (part.offset == last.offset + last.record_count or part.offset == last.offset < 0):
            last = last._replace(record_count=last.record_count + part.record_count)
        else:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last
