"""`.txnindex`: the aborted transactions of a segment, in the order of their end markers. Kafka's format.

An entry has 34 bytes, big-endian: version i16 (0), producer id, first offset, last offset (of the marker), last stable
offset at that time, each i64.
"""

import contextlib
import errno
import os
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from barnabas.errors import KafkaStorageError

__all__ = ["AbortedTransaction", "CorruptTransactionIndex", "TransactionIndex", "pack_entries", "parse_entries"]

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_last_offset: Final = attrgetter("last_offset")


class CorruptTransactionIndex(KafkaStorageError):
    """A transaction index holds something else than entries in order. The next start builds it again."""


class AbortedTransaction(NamedTuple):
    """`last_offset` is the offset of the abort marker, inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_entries(path: str, data: bytes, *, torn_end: bool = False) -> list[AbortedTransaction]:
    """The entries that a file holds; `torn_end`: the last one may be cut off. Raises CorruptTransactionIndex."""
    rest = len(data) % _ENTRY.size
    if rest and not torn_end:
        raise CorruptTransactionIndex(f"{path}: size {len(data)} is not a multiple of {_ENTRY.size}")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) - rest]):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or (entries and entries[-1].last_offset >= entry.last_offset):
            raise CorruptTransactionIndex(f"{path}: entry {entry} of version {version} is out of order")
        entries.append(entry)
    return entries


def pack_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """The entries as a file holds them."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TransactionIndex:
    """All entries are kept in memory: aborts are rare, and a fetch asks for ranges of them."""

    __slots__ = ("_entries", "_written", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] = []
        self._written = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def load(self) -> None:
        """Read the file, if there is one. Raises CorruptTransactionIndex."""
        self._entries = []
        self._written = 0
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        self._entries = parse_entries(self.path, data)
        self._written = len(self._entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker has just been written; markers come in order."""
        assert not self._entries or self._entries[-1].last_offset < aborted.last_offset, (self._entries[-1], aborted)
        self._entries.append(aborted)
        # the marker is in the log already: a full disk keeps the entry in memory, a crash finds it by the marker
        with contextlib.suppress(OSError):
            self.write_tail()

    def write_tail(self) -> None:
        """Bring the entries in memory to the file. Raises OSError."""
        if self._written == len(self._entries):
            return
        data = pack_entries(self._entries[self._written :])
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.pwrite(fd, data, self._written * _ENTRY.size) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        finally:
            os.close(fd)
        self._written = len(self._entries)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch [fetch_offset, upper_bound), and whether later segments can hold no more."""
        found = []
        entries = self._entries
        for slot in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
            entry = entries[slot]
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or after `offset`."""
        kept = [entry for entry in self._entries if entry.last_offset < offset]
        if len(kept) < len(self._entries):
            self._entries = kept
            if self._written > len(kept):
                self._written = len(kept)
                os.truncate(self.path, len(kept) * _ENTRY.size)

    def reset(self) -> None:
        """Drop all, also from the file."""
        self._entries = []
        self._written = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
