"""The offset index `.index`: for about every index.interval.bytes of a segment, the last offset of a batch and the
position of the batch.

An entry is (offset relative to the segment's base, position), two big-endian 32-bit integers; Kafka's format.
"""

from bisect import bisect_right
from struct import Struct

from barnabas.log.indexes.sparse_index import CorruptIndex, SparseIndex
from barnabas.types import Offset

__all__ = ["OffsetIndex"]


class OffsetIndex(SparseIndex):
    """Finds the position from which to scan for an offset."""

    __slots__ = ()
    entry = Struct(">ii")

    def append(self, offset: Offset, position: int) -> None:
        """Adds an entry. Offsets must increase."""
        self._add(offset - self.base_offset, position)

    def lookup(self, offset: Offset) -> tuple[Offset, int]:
        """Returns offset and position of the last entry at or below `offset`; (base_offset, 0) if there is none."""
        key = offset - self.base_offset
        keys = self._tail_keys
        if keys and keys[0] <= key:
            slot = bisect_right(keys, key) - 1
            return self.base_offset + keys[slot], self._tail_values[slot]  # type: ignore[return-value]
        if self._file_entries and (slot := self._file_floor(key)) >= 0:
            relative, position = self.entry_at(slot)
            return self.base_offset + relative, position  # type: ignore[return-value]
        return self.base_offset, 0

    def lookup_position(self, position: int) -> tuple[Offset, int]:
        """Returns offset and position of the last entry at or below a position; (base_offset, 0) if there is none."""
        slot = self._slots_up_to(position)
        if not slot:
            return self.base_offset, 0
        relative, found = self.entry_at(slot - 1)
        return Offset(self.base_offset + relative), found

    def offset_after(self, position: int) -> Offset | None:
        """Returns the smallest known offset above all batches before a position."""
        slot = self._slots_up_to(position - 1)
        return Offset(self.base_offset + self.entry_at(slot)[0]) if slot < len(self) else None

    def _slots_up_to(self, position: int) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if self.entry_at(middle)[1] <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def last_offset(self) -> Offset:
        """Returns the offset of the last entry; base_offset if there is none."""
        return Offset(self.base_offset + (self._last[0] if self._last is not None else 0))

    def truncate_to(self, offset: Offset) -> None:
        """Removes the entries at and above `offset`."""
        self.keep(self._slots_below(offset))

    def _slots_below(self, offset: Offset) -> int:
        key = offset - self.base_offset
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) >> 1
            if self.entry_at(middle)[0] < key:
                low = middle + 1
            else:
                high = middle
        return low

    def sanity_check(self, segment_size: int) -> None:
        """Raises CorruptIndex if the last entry cannot belong to a segment of this size."""
        count = len(self)
        if not count:
            return
        relative, position = self.entry_at(count - 1)
        if relative < 0 or position < 0 or position >= segment_size:
            raise CorruptIndex(
                f"{self.path}: last entry ({relative}, {position}) is outside the segment of {segment_size}"
            )
        if count > 1 and self.entry_at(count - 2) >= (relative, position):
            # also after a crash of Kafka: its preallocated file has zeros after the last entry
            raise CorruptIndex(f"{self.path}: entries do not grow")
