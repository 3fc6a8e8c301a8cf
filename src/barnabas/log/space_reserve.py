"""Disk space that is set aside in a data directory, so that the way out of a full disk has room.

Deleting a topic, lowering its retention and starting the broker write a few kilobytes before they free anything. The
reserve is a file that is allocated while there is room; who has to write when there is none cuts off a part of it.
Records never use it: producers would have filled it, too.
"""

import logging
import os
from typing import Final

__all__ = ["SpaceReserve"]

_log = logging.getLogger(__name__)

_NAME: Final = "barnabas-reserve"


class SpaceReserve:
    """The reserve of one data directory. Nothing here raises OSError: who writes meets the error that matters."""

    def __init__(self, directory: str, size: int) -> None:
        """`size` 0: there is none."""
        self._path = f"{directory}/{_NAME}"
        self._directory = directory
        self._size = size

    def ensure(self, wanted: int) -> None:
        """Cut off as much of the reserve as makes `wanted` bytes free in the file system."""
        try:
            missing = wanted - _free_bytes(self._directory)
            if missing <= 0 or not self._size:
                return
            left = os.stat(self._path).st_size
            if not left:
                return
            os.truncate(self._path, max(left - missing, 0))
        except OSError:
            return
        _log.warning(
            "%s: the disk is full; %d bytes were taken from its reserve, %d are left; delete topics or lower their "
            "retention, or make room",
            self._directory,
            min(missing, left),
            max(left - missing, 0),
        )

    def refill(self) -> None:
        """Allocate what is missing, where as much again would still be free. May block."""
        if not self._size or not hasattr(os, "posix_fallocate"):
            return
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        try:
            missing = self._size - os.fstat(fd).st_size
            if missing > 0 and _free_bytes(self._directory) >= missing + self._size:
                os.posix_fallocate(fd, 0, self._size)
        except OSError as error:
            _log.warning("%s: no space could be set aside: %s", self._path, error.strerror)
        finally:
            os.close(fd)


def _free_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
