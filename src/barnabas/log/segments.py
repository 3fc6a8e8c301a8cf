"""The segments of a log in order, and what is found by looking through them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

from barnabas.log.segment import LogSegment
from barnabas.log.transaction_index import AbortedTransaction
from barnabas.records.batch import BatchHeader

__all__ = ["LogSegments"]


class LogSegments(Sequence[LogSegment]):
    """Oldest first, never empty; the last one is `active`. Base offsets grow."""

    __slots__ = ("_segments", "active", "base_offsets")

    def __init__(self, segments: list[LogSegment]) -> None:
        assert segments, "a log has at least its active segment"
        self._segments = segments
        self.base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]

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
        """Of the batches; indexes are not counted, as in Kafka."""
        return sum(segment.size for segment in self._segments)

    # -- changing ------------------------------------------------------------------------------------------------------

    def add(self, segment: LogSegment) -> None:
        """A new active segment."""
        assert segment.base_offset > self.active.base_offset, (segment, self.active)
        self._segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> list[LogSegment]:
        """Take the oldest out; one has to stay."""
        assert count < len(self._segments), (count, len(self._segments))
        removed = self._segments[:count]
        del self._segments[:count], self.base_offsets[:count]
        return removed

    def remove_above(self, offset: int) -> list[LogSegment]:
        """Take those out whose base offset is above `offset`; the first has to stay."""
        keep = bisect_right(self.base_offsets, offset)
        assert keep > 0, (offset, self.base_offsets[0])
        removed = self._segments[keep:]
        del self._segments[keep:], self.base_offsets[keep:]
        self.active = self._segments[-1]
        return removed

    def replace_all(self, segment: LogSegment) -> None:
        """`segment` takes the place of all."""
        self._segments = [segment]
        self.base_offsets = [segment.base_offset]
        self.active = segment

    # -- finding -------------------------------------------------------------------------------------------------------

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that should hold `offset`, and those behind it."""
        return self._segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]

    def locate(self, offset: int) -> tuple[LogSegment, tuple[int, int] | None]:
        """The segment and (position, size) of the first batch that ends at or after `offset`; None behind the last.

        It is in a later segment than expected if compaction removed the end of one.
        """
        for segment in self.from_offset(offset):
            if (found := segment.locate(offset)) is not None:
                return segment, found
        return self.active, None

    def place_of(self, offset: int) -> tuple[LogSegment, int]:
        """Segment and position where the batch that holds `offset` begins, or will begin."""
        segment, found = self.locate(offset)
        return segment, found[0] if found else segment.size

    def headers_from(self, offset: int) -> Iterator[tuple[LogSegment, int, BatchHeader]]:
        """(segment, position, header) of the batches from the one that holds `offset` on."""
        first, found = self.locate(offset)
        if found is None:
            return
        position = found[0]
        for segment in self.from_offset(first.base_offset):
            for at, header in segment.headers(position):
                yield segment, at, header
            position = 0

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records or their marker in [fetch_offset, upper_bound)."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(fetch_offset):
            if (index := segment.transaction_index_if_any()) is not None:
                aborted, complete = index.collect(fetch_offset, upper_bound)
                found += aborted
                if complete:
                    break
        return found
