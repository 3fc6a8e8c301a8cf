"""`.txnindex`: the aborted transactions of a segment, in the order of their end markers. Kafka's format.

An entry has 34 bytes, big-endian: version i16 (0), producer id, first offset, last offset (of the marker), last stable
offset at that time, each i64.
"""

import contextlib
import os
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["AbortedTransaction", "CorruptTransactionIndex", "TransactionIndex"]

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class CorruptTransactionIndex(Exception):
    """A transaction index holds something else than entries in order."""


class AbortedTransaction(NamedTuple):
    """`last_offset` is the offset of the abort marker, inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """All entries are kept in memory: aborts are rare, and a fetch asks for ranges of them."""

    __slots__ = ("_entries", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def load(self) -> None:
        """Read the file, if there is one. Raises CorruptTransactionIndex."""
        self._entries = []
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        if len(data) % _ENTRY.size:
            raise CorruptTransactionIndex(f"{self.path}: size {len(data)} is not a multiple of {_ENTRY.size}")
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != _VERSION or (self._entries and self._entries[-1].last_offset >= entry.last_offset):
                raise CorruptTransactionIndex(f"{self.path}: entry {entry} of version {version} is out of order")
            self._entries.append(entry)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker has just been written; markers come in order."""
        assert not self._entries or self._entries[-1].last_offset < aborted.last_offset, (self._entries[-1], aborted)
        with open(self.path, "ab") as file:
            file.write(_ENTRY.pack(_VERSION, *aborted))
        self._entries.append(aborted)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch [fetch_offset, upper_bound), and whether later segments can hold no more."""
        found = []
        for entry in self._entries:
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or after `offset`."""
        kept = [entry for entry in self._entries if entry.last_offset < offset]
        if len(kept) < len(self._entries):
            self._entries = kept
            os.truncate(self.path, len(kept) * _ENTRY.size)

    def reset(self) -> None:
        """Drop all, also from the file."""
        self._entries = []
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path, 0)

    def sync(self) -> None:
        """Make the entries durable."""
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
