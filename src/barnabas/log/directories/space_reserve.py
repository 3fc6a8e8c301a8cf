"""Reserves disk space in a data directory for the writes with which a full disk can be cleared.

Deleting a topic, lowering its retention and starting the broker write a few kilobytes before they free anything. The
reserve is a file that is allocated while there is room. A write that may use it cuts off a part of it, and what the
write leaves over goes back into the reserve before any record can be appended: producers would fill it at once.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["SpaceReserve", "free_bytes"]

_log = logging.getLogger(__name__)

_NAME: Final = "barnabas-reserve"
_BLOCK: Final = 4096


class SpaceReserve:
    """The reserve of one data directory. Nothing here raises OSError: the write that finds no space raises it.

    May be used by any thread.
    """

    def __init__(self, directory: str, size: int) -> None:
        """A `size` of 0 means no reserve."""
        self._path = f"{directory}/{_NAME}"
        self._directory = directory
        self._size = size
        self._lock = threading.Lock()
        self._cut_from = 0
        """The size to which the reserve is to be restored."""
        self._reported = False

    @contextlib.contextmanager
    def lent(self, wanted: int) -> Iterator[None]:
        """Makes `wanted` bytes free within the context, out of the reserve if necessary. Reserves the unused rest
        again."""
        with self._lock:
            held = self._cut(wanted)
            try:
                yield
            finally:
                if held:
                    self._grow(held)

    def is_needed(self, wanted: int) -> bool:
        """Whether there are fewer than `wanted` bytes free, so that `lent` would cut the reserve."""
        return self._size > 0 and free_bytes(self._directory) < wanted and self._held() > 0

    def ensure(self, wanted: int) -> None:
        """Makes `wanted` bytes free, out of the reserve if necessary. `refill` reserves the unused rest again."""
        with self._lock:
            self._cut_from = max(self._cut_from, self._cut(wanted))

    def refill(self) -> None:
        """Restores the reserve, as far as the same amount would still be free. May block."""
        if not self._size:
            return
        with self._lock:
            if self._cut_from:
                self._grow(self._cut_from)
                self._cut_from = 0
            missing = self._size - self._held()
            if missing > 0 and free_bytes(self._directory) >= missing + self._size:
                self._grow(self._size)
            self._reported = self._reported and self._held() < self._size

    def _cut(self, wanted: int) -> int:
        """Frees the missing bytes. Returns the former size of the reserve, 0 if nothing was freed."""
        if not self._size:
            return 0
        missing = wanted - free_bytes(self._directory)
        if missing <= 0 or not (held := self._held()):
            return 0
        try:
            os.truncate(self._path, max(held - missing, 0))
        except OSError:
            return 0
        if not self._reported:
            self._reported = True
            _log.warning(
                "%s: the disk is full; %d bytes are set aside for the way out: delete topics or lower their retention, "
                "or make room",
                self._directory,
                held,
            )
        return held

    def _held(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0

    def _grow(self, size: int) -> None:
        """Allocates up to `size` bytes, as many as there are. Does nothing if the system cannot allocate."""
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            held = os.fstat(fd).st_size
            step = size - held
            while step >= _BLOCK:
                try:
                    os.posix_fallocate(fd, held, step)
                    held += step
                    step = min(step, size - held)
                except OSError:
                    os.ftruncate(fd, held)  # a part may have been allocated
                    step = step // 2 // _BLOCK * _BLOCK
        finally:
            os.close(fd)


def free_bytes(directory: str) -> int:
    """Returns the space that is left for records on the disk of a directory; 0 if the disk does not tell."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
