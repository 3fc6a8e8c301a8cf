"""The transaction index `.txnindex`, in Kafka's format: a segment's aborted transactions in the order of their markers.

An entry has 34 bytes, big-endian: version i16 (0), producer id, first offset, last offset (of the marker), last stable
offset at that time, each i64.
"""

import contextlib
import os
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from barnabas.errors import KafkaStorageError
from barnabas.log.directories.disk import Disk
from barnabas.types import Offset, ProducerId

__all__ = ["AbortedTransaction", "CorruptTransactionIndex", "TransactionIndex", "pack_entries", "parse_entries"]

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_last_offset: Final = attrgetter("last_offset")


class CorruptTransactionIndex(KafkaStorageError):
    """The file does not contain valid entries in order. The next start rebuilds it."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction. `last_offset` is the offset of the abort marker, inclusive."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def parse_entries(path: str, data: bytes, *, torn_end: bool = False) -> list[AbortedTransaction]:
    """Decodes the entries of a file. `torn_end` says that the last one may be cut off. Raises
    CorruptTransactionIndex."""
    rest = len(data) % _ENTRY.size
    if rest and not torn_end:
        raise CorruptTransactionIndex(f"{path}: size {len(data)} is not a multiple of {_ENTRY.size}")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) - rest]):
        entry = AbortedTransaction(*fields)
        is_after = not entries or entries[-1].last_offset < entry.last_offset
        if version != _VERSION or not is_after or not 0 <= entry.first_offset < entry.last_offset:
            raise CorruptTransactionIndex(f"{path}: entry {entry} of version {version} is out of order")
        entries.append(entry)
    return entries


def pack_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """Keeps all entries in memory: aborts are rare, and a fetch needs ranges of them."""

    __slots__ = ("_disk", "_entries", "_synced", "_written", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[AbortedTransaction] = []
        self._written = 0
        """The number of entries in the file."""
        self._synced = 0
        """The number of entries that are known to be on the device."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        return tuple(self._entries)

    @classmethod
    def load(cls, path: str, disk: Disk) -> "TransactionIndex":
        """Loads a file; an index without entries if there is none. Raises OSError, CorruptTransactionIndex."""
        index = cls(path, disk)
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            index._entries = parse_entries(path, file.read())
            index._written = len(index._entries)
        return index

    @property
    def is_synced(self) -> bool:
        """Returns whether all entries are known to be on the device."""
        return self._synced == len(self._entries)

    def note_synced(self, entries: int) -> None:
        self._synced = min(entries, self._written)

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds a transaction whose marker has just been written. Markers come in order."""
        assert not self._entries or self._entries[-1].last_offset < aborted.last_offset, (self._entries[-1], aborted)
        self._entries.append(aborted)
        # The marker is in the log already. An entry that a full disk refuses stays in memory. Until it is in the file
        # no producer snapshot is written after the marker, so that a restart reads the marker again.
        with contextlib.suppress(OSError):
            self.write_tail()

    def write_tail(self) -> None:
        """Writes the entries in memory to the file. Raises OSError."""
        if self._written == len(self._entries):
            return
        data = pack_entries(self._entries[self._written :])
        fd = self._disk.open(self.path)
        try:
            self._disk.write_fully(fd, data, self._written * _ENTRY.size)
        finally:
            os.close(fd)
        self._written = len(self._entries)

    def collect(self, fetch_offset: Offset, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the transactions in [fetch_offset, upper_bound), and whether later segments can have no more."""
        found = []
        entries = self._entries
        for slot in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
            entry = entries[slot]
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: Offset) -> None:
        """Removes the transactions whose marker is at or after `offset`."""
        kept = [entry for entry in self._entries if entry.last_offset < offset]
        if len(kept) < len(self._entries):
            if self._written > len(kept):
                os.truncate(self.path, len(kept) * _ENTRY.size)
                self._written = len(kept)
            self._entries = kept
            self._synced = 0
