"""The log's access to the file system: a few calls that a test can replace, and the bound on open files.

A log with ten thousand partitions must not hold ten thousand descriptors and maps, so every holder of a descriptor
registers with a ResourcePool, which closes the least recently opened ones. A file is closed when nothing refers to it
any more: a slice that is being sent keeps its OpenFile alive, so a descriptor number is never used again under a
reader.
"""

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.records.file_slice import FileSlice

__all__ = [
    "Disk",
    "Evictable",
    "HeldSlice",
    "OpenFile",
    "ResourcePool",
    "SliceOwner",
    "default_pool_limit",
    "fsync_directory",
    "fsync_file",
    "is_there",
]

_OPEN_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC
_MIN_POOL: Final = 8


class Disk:
    """The calls of the log on open files. A simulated disk overrides them to make them fail."""

    __slots__ = ()

    pwritev = staticmethod(os.pwritev)
    pwrite = staticmethod(os.pwrite)
    pread = staticmethod(os.pread)
    ftruncate = staticmethod(os.ftruncate)
    fdatasync = staticmethod(getattr(os, "fdatasync", os.fsync))  # macOS has the latter alone

    def open(self, path: str) -> int:
        """Opens a file for reading and writing, and makes it if it does not exist."""
        return os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o644)

    def open_existing(self, path: str) -> int:
        """Opens an existing file: a segment that is lost must not come back as an empty one."""
        return os.open(path, _OPEN_FLAGS)

    def forget_cached(self, fd: int) -> None:
        """Drops the clean pages of a file from the page cache, so that the next reads come from the device."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # the file system has no page cache, or ignores the advice
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def free_bytes(self, fd: int) -> int:
        """Returns how much room the file system of an open file has left for this process. Unlike `free_bytes` of a
        directory it counts what only root may take: records are written there, too, but no reserve is made of it."""
        status = os.fstatvfs(fd)
        blocks = status.f_bavail if os.geteuid() else max(status.f_bavail, status.f_bfree)
        return blocks * status.f_frsize

    def write_fully(self, fd: int, data: bytes, position: int) -> None:
        """Writes all of `data` at `position`. Raises OSError if the disk takes less."""
        written = self.pwrite(fd, data, position)
        while written < len(data):
            more = self.pwrite(fd, data[written:], position + written)
            if more == 0:
                raise OSError(f"the disk takes no more than {written} of {len(data)} bytes")
            written += more


class OpenFile:
    """A descriptor that is closed when nothing refers to it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class SliceOwner(Protocol):
    """The owner of a slice, which is told when it cannot be read."""

    def slice_failed(self, failed: "HeldSlice", error: Exception) -> None:
        """Called when the slice cannot be read."""


class HeldSlice(FileSlice):
    """A FileSlice that keeps its file open: the descriptor outlives deletion and eviction of the segment."""

    __slots__ = ("file", "owner")

    def __init__(self, file: OpenFile, position: int, size: int, owner: SliceOwner | None = None) -> None:
        self.fd = file.fd
        self.position = position
        self.size = size
        self.file = file
        self.owner = owner

    def failed(self, error: Exception) -> None:
        if self.owner is not None:
            self.owner.slice_failed(self, error)


class Evictable(Protocol):
    """An object that holds a descriptor, or a map, which costs one as well, and can open it again."""

    recently_used: bool

    def release(self) -> None:
        """Closes the descriptor. The next use opens it again."""


class ResourcePool:
    """At most `limit` descriptors: a new one evicts the oldest that has not been used since the last check.

    Second chance rather than strict recency: a use only sets a flag, which is all that an append can afford.
    """

    __slots__ = ("_lock", "_members", "limit")

    def __init__(self, limit: int | Callable[[], int]) -> None:
        """A `limit` that may change while the process runs is asked for when a descriptor is opened."""
        self.limit = limit
        self._members: dict[Evictable, None] = {}
        self._lock = threading.Lock()  # logs may be recovered by several threads

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Evictable) -> None:
        """Adds a holder that has just opened its descriptor."""
        with self._lock:
            evicted = self._evict()
            self._members[member] = None
        for holder in evicted:
            holder.release()

    def _evict(self) -> list[Evictable]:
        evicted = []
        limit = self.limit if isinstance(self.limit, int) else self.limit()
        while len(self._members) >= limit:
            oldest = next(iter(self._members))
            del self._members[oldest]
            if oldest.recently_used:
                oldest.recently_used = False
                self._members[oldest] = None
            else:
                evicted.append(oldest)
        return evicted

    def open(self, open_file: Callable[[str], int], path: str) -> int:
        """Opens a file, and closes all others first if the process has no descriptor left: they can be opened again,
        and what others hold may never be given back."""
        try:
            return open_file(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            members, self._members = list(self._members), {}
        for member in members:
            member.release()
        return open_file(path)

    def require(self, count: int) -> None:
        """Makes sure that the process can open so many files at once: closes those of the holders if it cannot. Raises
        OSError before work that must not end half-way for want of a descriptor."""
        opened: list[int] = []
        try:
            while len(opened) < count:
                opened.append(self.open(_open_to_read, os.devnull))
        finally:
            for fd in opened:
                os.close(fd)

    def discard(self, member: Evictable) -> None:
        """Removes a holder that has closed its descriptor itself."""
        with self._lock:
            self._members.pop(member, None)


def _open_to_read(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def default_pool_limit() -> int:
    """Returns half of the descriptors of the process. The other half is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 16
    return min(max(_MIN_POOL, soft // 2), 1 << 16)


def fsync_file(path: str) -> None:
    """Makes the content of a file durable."""
    _fsync(path)


def is_there(path: str) -> bool:
    """Returns whether there is a file or a directory. Raises OSError if the disk does not tell, which `os.path.exists`
    takes for a file that is missing."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def fsync_directory(path: str) -> None:
    """Makes created, renamed and deleted names in a directory durable."""
    _fsync(path)


def _fsync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
