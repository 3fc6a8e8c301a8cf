"""The time index `.timeindex`, in Kafka's format: no record up to an entry's offset has a later timestamp than the
entry.

An entry is a 64-bit timestamp in ms and the 32-bit offset relative to the segment's base, big-endian.
"""

from bisect import bisect_right
from struct import Struct

from barnabas.log.indexes.sparse_index import CorruptIndex, SparseIndex
from barnabas.types import NO_TIMESTAMP, Offset

__all__ = ["TimeIndex"]


class TimeIndex(SparseIndex):
    """Finds the offset from which to search for a timestamp."""

    __slots__ = ()
    entry = Struct(">qi")

    def maybe_append(self, timestamp: int, offset: Offset) -> None:
        """Adds an entry if its timestamp is later than that of the last entry."""
        if timestamp > self.last_timestamp():
            self._add(timestamp, offset - self.base_offset)

    def last_timestamp(self) -> int:
        """Returns the timestamp of the last entry; -1 if there is none."""
        return NO_TIMESTAMP if self._last is None else self._last[0]

    def last_entry(self) -> tuple[int, Offset]:
        """Returns timestamp and offset of the last entry; (-1, base_offset) if there is none."""
        if self._last is None:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._last
        return timestamp, Offset(self.base_offset + relative)

    def lookup(self, timestamp: int) -> tuple[int, Offset]:
        """Returns timestamp and offset of the last entry at or before `timestamp`; (-1, base_offset) if there is
        none."""
        keys = self._tail_keys
        if keys and keys[0] <= timestamp:
            slot = bisect_right(keys, timestamp) - 1
            return keys[slot], Offset(self.base_offset + self._tail_values[slot])
        if self._file_entries and (slot := self._file_floor(timestamp)) >= 0:
            found, relative = self.entry_at(slot)
            return found, Offset(self.base_offset + relative)
        return NO_TIMESTAMP, self.base_offset

    def truncate_to(self, offset: Offset) -> None:
        """Removes the entries at and above `offset`."""
        entries = len(self)
        while entries and self.base_offset + self.entry_at(entries - 1)[1] >= offset:
            entries -= 1
        self.keep(entries)

    def sanity_check(self) -> None:
        """Raises CorruptIndex if the last entries do not increase or lie below the segment."""
        count = len(self)
        if not count:
            return
        timestamp, relative = self.entry_at(count - 1)
        if relative < 0 or (count > 1 and self.entry_at(count - 2)[0] >= timestamp):
            raise CorruptIndex(f"{self.path}: entries do not grow")
