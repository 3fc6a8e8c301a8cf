"""Disk space that is set aside in a data directory, so that the way out of a full disk has room.

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

__all__ = ["SpaceReserve"]

_log = logging.getLogger(__name__)

_NAME: Final = "barnabas-reserve"
_BLOCK: Final = 4096


class SpaceReserve:
    """The reserve of one data directory. Nothing here raises OSError: the write that finds no room raises it.

    May be used by any thread.
    """

    def __init__(self, directory: str, size: int) -> None:
        """`size` 0: there is none."""
        self._path = f"{directory}/{_NAME}"
        self._directory = directory
        self._size = size
        self._lock = threading.Lock()
        self._cut_from = 0
        """The size before a part was cut off that has not been taken back yet."""
        self._reported = False

    @contextlib.contextmanager
    def lent(self, wanted: int) -> Iterator[None]:
        """Make `wanted` bytes free in the file system, out of the reserve if need be, for as long as the context lasts.
        What is then left of them is taken back."""
        with self._lock:
            held = self._cut(wanted)
            try:
                yield
            finally:
                if held:
                    self._grow(held)

    def ensure(self, wanted: int) -> None:
        """Make `wanted` bytes free, out of the reserve if need be; `refill` takes back what is left of them."""
        with self._lock:
            self._cut_from = max(self._cut_from, self._cut(wanted))

    def refill(self) -> None:
        """Take back what `ensure` has cut off, and allocate the rest where as much again would still be free. May
        block."""
        if not self._size:
            return
        with self._lock:
            if self._cut_from:
                self._grow(self._cut_from)
                self._cut_from = 0
            missing = self._size - self._held()
            if missing > 0 and _free_bytes(self._directory) >= missing + self._size:
                self._grow(self._size)
            self._reported = self._reported and self._held() < self._size

    def _cut(self, wanted: int) -> int:
        """Cut off what is missing. Returns the size of the reserve before that, 0 where nothing was cut off."""
        if not self._size:
            return 0
        missing = wanted - _free_bytes(self._directory)
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
        """Allocate up to `size` bytes, or as many as there are. Does nothing where the system cannot allocate."""
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


def _free_bytes(directory: str) -> int:
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
