"""A consumer for exact ranges of offsets, as those need who plan what is read elsewhere: `RangeReader`."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.consumer.delivered_records import Held
from barnabas.client.consumer.front import Consumer
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.positions import PartitionState
from barnabas.errors import OperationTimedOut
from barnabas.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RangeReader"]

_LOOK_S: Final = 0.5
"""How long nothing may come before it is asked whether there is anything."""
_DEFAULTS: Final = {
    "fetch.max.wait.ms": 100,
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "receive.buffer.bytes": -1,  # 64 KiB, as Kafka has it, is a twentieth of what comes at once
}


class RangeReader(Consumer):
    """Reads ranges, one after the other, as Arrow batches. Nothing beyond their ends is asked for, so no broker holds a
    question back that the next range would have to wait behind.

    No group, no commits, no reset: an offset that is gone is OffsetOutOfRange. Needs pyarrow.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Settings as for a consumer. Raises UsageError."""
        fixed = {"auto.offset.reset": "none", "allow.auto.create.topics": False}
        super().__init__({**_DEFAULTS, **settings, **fixed})

    def read(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        headers: bool = False,
        timeout: float | None = None,
    ) -> "Iterator[pyarrow.RecordBatch]":
        """The records from `start` up to `end` (not included) in batches of about a megabyte; none where all records
        are gone by compaction or belong to aborted transactions. `timeout`: for how many seconds nothing may come.

        Columns are those of `Consumer.arrow`. Raises OffsetOutOfRange, OperationTimedOut, what else brokers say.
        """
        where = TopicPartition(*partition)
        position = start
        self._begin(where, start, end)
        while position < end:
            batch, position = self._handed(partial(self._read_from, where, position, end, headers, timeout))
            if batch is not None:
                batch = _before(batch, end)
            if batch is not None:
                yield batch

    def _read_from(
        self, where: TopicPartition, position: int, end: int, headers: bool, timeout: float | None
    ) -> "tuple[pyarrow.RecordBatch | None, int]":
        """What comes next, and where to go on behind it."""
        found = self._wait_within(where, position, end, timeout)
        if found is None:
            return None, end
        return self._read_batch_of(found, headers), self._position_of(where)

    def _begin(self, where: TopicPartition, start: int, end: int) -> None:
        self.assign([where])
        self._state_of(where).fetch_until = end
        self.seek(where, start)

    def _state_of(self, where: TopicPartition) -> PartitionState:
        state = self._core.subscription.get(where)
        assert state is not None, f"{where} is read and not assigned"
        return state

    def _position_of(self, where: TopicPartition) -> int:
        position = self._state_of(where).position
        assert position is not None, f"{where} is read without a position"
        return position.offset

    def _read_batch_of(self, found: Held | CompletedFetch, headers: bool) -> "pyarrow.RecordBatch | None":
        assert isinstance(found, CompletedFetch), "a range reader is not iterated"
        return self._read_whole(found, lambda: found.read_arrow(headers=headers))

    def _wait_within(
        self, where: TopicPartition, position: int, end: int, timeout: float | None
    ) -> Held | CompletedFetch | None:
        """What is to be read next; None if nothing is left up to the end."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            found = self._next(min(_LOOK_S, max(deadline - time.monotonic(), 0.0)))
            if found is not None or self._is_empty(where, position, end):
                return found
            if time.monotonic() >= deadline:
                raise OperationTimedOut(
                    f"{where}: nothing came from offset {position} on, wanted up to {end}, within {timeout:g} s",
                    self._core.client.unreachable().attempts,
                )
            # a partition without news is left out of a session's answers; one that comes into it anew is not
            self.assign([])
            self._begin(where, position, end)

    def _is_empty(self, where: TopicPartition, position: int, end: int) -> bool:
        """Whether the broker has answered for this offset, has all up to the end, and gave nothing: a compaction took
        the last records of a log whose newest segment is empty."""
        state = self._state_of(where)
        last = state.last_stable_offset if self.settings.read_committed else state.high_watermark
        return state.empty_at == position and last != NO_OFFSET and last >= end


def _before(batch: "pyarrow.RecordBatch", end: int) -> "pyarrow.RecordBatch | None":
    """What of it lies before the offset."""
    offsets = batch.column("offset")
    if offsets[len(offsets) - 1].as_py() < end:
        return batch
    values = memoryview(offsets.buffers()[1]).cast("q")[offsets.offset : offsets.offset + len(offsets)]
    count = bisect_left(values, end)
    return batch.slice(0, count) if count else None
