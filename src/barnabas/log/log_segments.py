"""The segments of a log in order, with searches over all of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import overload

from barnabas.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.log.log_segment import LogSegment
from barnabas.records.batch import BatchHeader
from barnabas.types import Offset

__all__ = ["LogSegments"]


class LogSegments(Sequence[LogSegment]):
    """The segments of a log, oldest first. There is always at least one; the last one is `active`."""

    __slots__ = ("_segments", "_with_aborts", "active", "base_offsets")

    def __init__(self, segments: list[LogSegment]) -> None:
        assert segments, "a log has at least its active segment"
        self._segments = segments
        self.base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._with_aborts: list[LogSegment] | None = None
        """The segments with a transaction index except the active one; None until the first search."""

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> LogSegment: ...

    @overload
    def __getitem__(self, index: slice) -> list[LogSegment]: ...

    def __getitem__(self, index: int | slice) -> LogSegment | list[LogSegment]:
        return self._segments[index]

    @property
    def size_bytes(self) -> int:
        """The size of all batches without indexes, as in Kafka."""
        return sum(segment.size for segment in self._segments)

    # -- changing ------------------------------------------------------------------------------------------------------

    def add(self, segment: LogSegment) -> None:
        assert segment.base_offset > self.active.base_offset, (segment, self.active)
        self._segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment
        self._with_aborts = None

    def remove_first(self, count: int) -> list[LogSegment]:
        assert count < len(self._segments), (count, len(self._segments))
        removed = self._segments[:count]
        del self._segments[:count], self.base_offsets[:count]
        self._with_aborts = None
        return removed

    def remove_above(self, offset: Offset) -> list[LogSegment]:
        """Removes the segments whose base offset is above `offset`, but not all, and returns them."""
        keep = bisect_right(self.base_offsets, offset)
        assert keep > 0, (offset, self.base_offsets[0])
        removed = self._segments[keep:]
        del self._segments[keep:], self.base_offsets[keep:]
        self.active = self._segments[-1]
        self._with_aborts = None
        return removed

    def replace_all(self, segment: LogSegment) -> None:
        self._segments = [segment]
        self.base_offsets = [segment.base_offset]
        self.active = segment
        self._with_aborts = None

    def contains_run(self, segments: Sequence[LogSegment]) -> bool:
        """Returns whether these are segments of the log, in this order and without others between them."""
        if not segments:
            return True
        first = self._index_of(segments[0])
        return first >= 0 and self._segments[first : first + len(segments)] == list(segments)

    def _index_of(self, segment: LogSegment) -> int:
        found = bisect_right(self.base_offsets, segment.base_offset) - 1
        return found if found >= 0 and self._segments[found] is segment else -1

    def replace(self, old: Sequence[LogSegment], segment: LogSegment) -> None:
        """Replaces `old`, consecutive segments before the active one, by `segment`."""
        assert old[-1] is not self.active, old
        assert segment.base_offset == old[0].base_offset, (segment, old)
        first = self._index_of(old[0])
        self._segments[first : first + len(old)] = [segment]
        self.base_offsets[first : first + len(old)] = [segment.base_offset]
        self._with_aborts = None

    # -- finding -------------------------------------------------------------------------------------------------------

    def from_offset(self, offset: Offset) -> list[LogSegment]:
        """Returns the segment that should contain `offset`, and the segments after it."""
        return self._segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]

    def locate(self, offset: Offset) -> tuple[LogSegment, tuple[int, int] | None]:
        """Returns the segment, position and size of the first batch that ends at or after `offset`.

        Position and size are None after the last batch. The batch is in a later segment than expected if compaction has
        removed the end of a segment.
        """
        for segment in self.from_offset(offset):
            if (found := segment.locate(offset)) is not None:
                return segment, found
        return self.active, None

    def position_of(self, offset: Offset) -> tuple[LogSegment, int]:
        """Returns the segment and position where the batch that contains `offset` begins, or will begin."""
        segment, found = self.locate(offset)
        return segment, found[0] if found else segment.size

    def headers_from(self, offset: Offset) -> Iterator[tuple[LogSegment, int, BatchHeader]]:
        """Yields segment, position and header of the batches from the one that contains `offset` on."""
        first, found = self.locate(offset)
        if found is None:
            return
        position = found[0]
        for segment in self.from_offset(first.base_offset):
            for at, header in segment.headers(position):
                yield segment, at, header
            position = 0

    def aborted_transactions(self, fetch_offset: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records or their marker in [fetch_offset, upper_bound)."""
        return _collect(self._aborts_from(fetch_offset), fetch_offset, upper_bound)

    def aborted_before(self, fetch_offset: Offset, end_position: int, upper_bound: Offset) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records between `fetch_offset` and a position in its segment's file.

        Only those below `upper_bound`; maybe the next few, too, because the offset index is sparse.
        """
        indexes = self._aborts_from(fetch_offset)
        if not indexes:
            return []
        segment, _ = self.locate(fetch_offset)
        end_offset = segment.offset_index.offset_after(end_position)
        if end_offset is None:
            slot = bisect_right(self.base_offsets, segment.base_offset)
            end_offset = self.base_offsets[slot] if slot < len(self.base_offsets) else upper_bound
        return _collect(indexes, fetch_offset, min(end_offset, upper_bound))

    def _aborts_from(self, offset: Offset) -> list[TransactionIndex]:
        """Returns the transaction indexes of the segment that should contain `offset` and of the segments after it."""
        if self._with_aborts is None:
            self._with_aborts = [s for s in self._segments[:-1] if s.transaction_index_if_any() is not None]
        start = self.base_offsets[max(bisect_right(self.base_offsets, offset) - 1, 0)]
        first = bisect_left(self._with_aborts, start, key=attrgetter("base_offset"))
        indexes = [segment.transaction_index for segment in self._with_aborts[first:]]
        if (index := self.active.transaction_index_if_any()) is not None:
            indexes.append(index)
        return indexes


def _collect(indexes: list[TransactionIndex], fetch_offset: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for index in indexes:
        aborted, complete = index.collect(fetch_offset, upper_bound)
        found += aborted
        if complete:
            break
    return found
