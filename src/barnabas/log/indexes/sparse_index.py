"""The common part of offset index and time index: sorted entries of a fixed size in a file, found by bisection.

Kafka writes through a map of a preallocated file. Here new entries wait in memory (at most TAIL_ENTRIES of them) and
reach the file by pwrite: a store into a map of a sparse file kills the process (SIGBUS) when the disk is full, and a
broker must survive that. The file is therefore always exactly as long as its entries. Lookups below the tail go
through a read-only map, made on first use. After a crash the index may be behind by a tail; recovery indexes from the
last entry on.

Where we differ: the entries of the active segment get into its `.index` and `.timeindex` 128 at a time, and the rest
when the segment is full or the broker stops. Until then it may have no such files, and `kafka-dump-log` can read its
`.log` alone.
"""

import contextlib
import mmap
import os
from struct import Struct
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.types import Offset

__all__ = ["TAIL_ENTRIES", "CorruptIndex", "SparseIndex"]

TAIL_ENTRIES: Final = 128
_WINDOW: Final = 8


class CorruptIndex(KafkaStorageError):
    """An index file contradicts itself or its segment. The next start rebuilds it from the segment."""


class SparseIndex:
    """Entries of a key and a value, neither of which decreases. Subclasses define their format."""

    __slots__ = (
        "_disk",
        "_file_entries",
        "_last",
        "_map",
        "_pool",
        "_tail_keys",
        "_tail_values",
        "base_offset",
        "is_changed",
        "path",
        "recently_used",
    )
    entry: Struct

    def __init__(self, path: str, base_offset: Offset, disk: Disk, pool: ResourcePool) -> None:
        self.path = path
        self.base_offset = base_offset
        self.recently_used = False
        self.is_changed = False
        """Whether the file was changed since it was made or loaded."""
        self._disk = disk
        self._pool = pool
        self._map: mmap.mmap | None = None
        self._file_entries = 0
        self._last: tuple[int, int] | None = None
        """The last entry. An append needs it without opening the file, which may fail."""
        self._tail_keys: list[int] = []
        self._tail_values: list[int] = []

    def __len__(self) -> int:
        return self._file_entries + len(self._tail_keys)

    def load(self) -> None:
        """Loads the file. A missing file is an empty index. Raises CorruptIndex."""
        self.forget()
        self.is_changed = False
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return
        if size % self.entry.size:
            raise CorruptIndex(f"{self.path}: size {size} is not a multiple of {self.entry.size}")
        self._file_entries = size // self.entry.size
        self._find_last()

    def _find_last(self) -> None:
        self._last = self.entry_at(len(self) - 1) if len(self) else None

    def entry_at(self, slot: int) -> tuple[int, int]:
        """Returns key and value as in the file (offsets relative to base_offset)."""
        in_tail = slot - self._file_entries
        if in_tail >= 0:
            return self._tail_keys[in_tail], self._tail_values[in_tail]
        key, value = self.entry.unpack_from(self._mapped(), slot * self.entry.size)
        return key, value

    def keep(self, entries: int) -> None:
        """Removes all entries from slot `entries` on."""
        in_tail = entries - self._file_entries
        if in_tail >= 0:
            del self._tail_keys[in_tail:], self._tail_values[in_tail:]
            self._find_last()
            return
        self._tail_keys.clear()
        self._tail_values.clear()
        self.release()
        self._file_entries = entries
        self.is_changed = True
        fd = self._disk.open(self.path)
        try:
            self._disk.ftruncate(fd, entries * self.entry.size)
        finally:
            os.close(fd)
        self._find_last()

    def forget(self) -> None:
        """Removes all entries in memory, but leaves the file."""
        self.release()
        self._file_entries = 0
        self._last = None
        self._tail_keys.clear()
        self._tail_values.clear()

    def reset(self) -> None:
        """Removes all entries, also in the file."""
        self.forget()
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path, 0)
            self.is_changed = True

    def write_tail(self, *, sync: bool = False) -> None:
        """Writes the entries in memory to the file, and makes it if necessary. Raises OSError."""
        fd = self._disk.open(self.path)
        try:
            if self._tail_keys:
                self.is_changed = True
                pack = self.entry.pack
                data = b"".join(map(pack, self._tail_keys, self._tail_values))
                self._disk.write_fully(fd, data, self._file_entries * self.entry.size)
                self._file_entries += len(self._tail_keys)
                self._tail_keys.clear()
                self._tail_values.clear()
            if sync:
                self._disk.fdatasync(fd)
        finally:
            os.close(fd)

    def release(self) -> None:
        """Drops the map, which ends with its last reader: the pool calls this in any thread. The next lookup opens it
        again."""
        if self._map is not None:
            self._pool.discard(self)
            self._map = None

    def _add(self, key: int, value: int) -> None:
        keys = self._tail_keys
        keys.append(key)
        self._tail_values.append(value)
        self._last = (key, value)
        if not len(keys) % TAIL_ENTRIES:
            # the batch is already in the log; a full disk keeps the entries in memory until a later try
            with contextlib.suppress(OSError):
                self.write_tail()

    def _mapped(self) -> mmap.mmap:
        self.recently_used = True
        size = self._file_entries * self.entry.size
        data = self._map
        if data is None or len(data) < size:
            self.release()
            fd = self._pool.open(_open_to_read, self.path)
            try:
                data = self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise CorruptIndex(f"{self.path} is shorter than its {self._file_entries} entries") from error
            finally:
                os.close(fd)
            self._pool.add(self)
        return data

    def _file_floor(self, key: int) -> int:
        """Returns the last slot in the file whose key is at most `key`; -1 if there is none."""
        unpack, size, data = self.entry.unpack_from, self.entry.size, self._mapped()
        low, high = 0, self._file_entries
        first, last = unpack(data, 0)[0], unpack(data, (high - 1) * size)[0]
        if key >= last:
            return high - 1
        if key < first:
            return -1
        # keys usually grow evenly: the interpolated slot is close, and a window around it saves most of the bisection
        guess = (key - first) * high // (last - first)
        near, far = max(guess - _WINDOW, 0), min(guess + _WINDOW, high - 1)
        if unpack(data, near * size)[0] <= key:
            low = near + 1
        else:
            high = near
        if low <= far < high:
            if unpack(data, far * size)[0] > key:
                high = far
            else:
                low = far + 1
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1


def _open_to_read(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
