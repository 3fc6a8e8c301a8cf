"""Finds the part of a file that is in the page cache and can be sent without waiting for the disk.

A read with RWF_NOWAIT fails where it would have to wait. Two such reads of one byte, at the first and the last page of
a chunk, cost about a microsecond and are nearly always right: pages are cached and evicted in long runs. On file
systems without RWF_NOWAIT (tmpfs, some overlays) everything counts as resident.
"""

import errno
import os
import threading
from typing import Final

from barnabas.records.file_slice import FileSlice

__all__ = ["CHUNK_SIZE", "bring_in", "is_resident", "read_resident"]

CHUNK_SIZE: Final = 1024 * 1024
"""The size of a chunk, which is checked, read and sent at a time."""
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_probe: Final = (bytearray(1),)
_preadv: Final = os.preadv
_devices_without_answer: Final[set[int]] = set()
_thread: Final = threading.local()


def is_resident(fd: int, position: int, size: int) -> bool:
    """Returns whether these bytes are in the page cache, judged by the first and the last of them."""
    if _devices_without_answer and _cannot_answer(fd):
        return True
    try:
        return _preadv(fd, _probe, position, _NOWAIT) == _preadv(fd, _probe, position + size - 1, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        return _remember(fd, error)


def read_resident(fd: int, position: int, size: int) -> bytearray | None:
    """The bytes, or None if not all of them are in the page cache (or in the file)."""
    if _devices_without_answer and _cannot_answer(fd):
        return _read(fd, position, size, 0)
    try:
        return _read(fd, position, size, _NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        _remember(fd, error)
        return _read(fd, position, size, 0)


def _read(fd: int, position: int, size: int, flags: int) -> bytearray | None:
    data = bytearray(size)
    return data if os.preadv(fd, (data,), position, flags) == size else None


def bring_in(file_slice: FileSlice, position: int, size: int) -> None:
    """Waits until the bytes at `position` of the slice are in the page cache. Runs in a thread.

    It reads the bytes, upon which the kernel reads ahead by itself (POSIX_FADV_WILLNEED would disable that: 160 waits
    instead of 3 for 400 MB). An error of the disk is not raised: the send that follows gets it again. Nor is a lack of
    memory: that send waits for the disk instead.
    """
    start = file_slice.position + position
    try:
        # One call for all bytes: after each call the thread may have to wait for the interpreter.
        buffer = _buffer()
        while size > 0:
            count = os.preadv(file_slice.fd, (buffer[:size],), start)
            if count == 0:
                return
            start, size = start + count, size - count
    except (OSError, MemoryError):
        return


def _buffer() -> memoryview:
    buffer: memoryview | None = getattr(_thread, "buffer", None)
    if buffer is None:
        buffer = _thread.buffer = memoryview(bytearray(CHUNK_SIZE))
    return buffer


def _cannot_answer(fd: int) -> bool:
    return os.fstat(fd).st_dev in _devices_without_answer


def _remember(fd: int, error: OSError) -> bool:
    """Returns True for a file system without RWF_NOWAIT; raises other errors."""
    if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
        raise error
    _devices_without_answer.add(os.fstat(fd).st_dev)
    return True
