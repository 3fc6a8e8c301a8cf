"""Reserves disk space in a data directory, and beside a registry that brokers share, for the writes with which a full
disk can be cleared, and leaders be elected meanwhile.

Deleting a topic, lowering its retention and starting the broker write a few kilobytes before they free anything. The
reserve is a file that is allocated while there is room. A write that may use it cuts off a part of it, and what the
write leaves over goes back into the reserve before any record can be appended: producers would fill it at once. Records
of other brokers on the same disk wait as well: `LogSegment` has found it full.
"""

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

__all__ = ["RESERVE", "ReserveLocks", "SpaceReserve", "free_bytes"]

_log = logging.getLogger(__name__)

RESERVE: Final = "barnabas-reserve"
_BLOCK: Final = 4096
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_WAIT_MAX_S: Final = 1.0
"""The longest wait for another broker: it may stand still while it has the lock."""
_PAUSE_S: Final = 0.001


class ReserveLocks:
    """Keeps the reserves of all brokers that share a directory from taking what another one has cut off: it seems free
    to all of one disk. Goes on without locks where files cannot be locked.

    May be used by any thread, and by several processes: the kernel frees the locks of one that dies, and what it had
    cut off stays free for the next write.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._loan_lock = threading.Lock()
        self._loan = -1
        """The descriptor with this broker's share of the lock on the directory, as long as a start or stop lasts."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps others out for the time of one write, unless one of them stands still. Must not be nested."""
        with contextlib.ExitStack() as held:
            if self._lock.acquire(timeout=_WAIT_MAX_S):  # else a disk hangs, which may be another one than this
                held.callback(self._lock.release)
            with contextlib.suppress(OSError):
                fd = os.open(f"{self._directory}/{RESERVE}", os.O_RDWR | os.O_CLOEXEC)  # without it nothing is cut off
                held.callback(os.close, fd)
                if _lock_file(fd):
                    held.callback(fcntl.flock, fd, fcntl.LOCK_UN)  # a child that was forked has the descriptor, too
            yield

    def begin_loan(self) -> None:
        """Says until `end_loan` that what is free may have been cut off for this broker. Called while alone."""
        if self._loan >= 0:
            return
        with contextlib.suppress(OSError):
            loan = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                fcntl.flock(loan, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._replace_loan(loan)

    def end_loan(self) -> None:
        self._replace_loan(-1)

    def _replace_loan(self, loan: int) -> None:
        """Takes one descriptor for another. Several threads may do so at once: one that waits too long is not alone."""
        with self._loan_lock:
            before, self._loan = self._loan, loan
        if before >= 0:
            os.close(before)

    def is_lent(self) -> bool:
        """Returns whether a broker has a loan. Called while alone."""
        try:
            fd = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        finally:
            os.close(fd)
        return False


class SpaceReserve:
    """The reserve of one directory. A write that finds no space raises OSError, nothing here does unless it says so.

    May be used by any thread, and by several processes.
    """

    def __init__(self, directory: str, size: int, locks: ReserveLocks | None = None) -> None:
        """A `size` of 0 means no reserve. `locks` are those of all reserves on the disk, if there are several."""
        self._path = f"{directory}/{RESERVE}"
        self._directory = directory
        self._size = size
        self._locks = ReserveLocks(directory) if locks is None else locks
        self._cut_from = 0
        """The size to which the reserve is to be restored."""
        self._reported = False

    @contextlib.contextmanager
    def lent(self, wanted: int, may_cut: bool = True) -> Iterator[None]:
        """Makes `wanted` bytes free within the context, out of the reserve if necessary. Reserves the unused rest
        again. Raises OSError if it is necessary and `may_cut` is false: a write may go into pages that its file has,
        and what it brings would need the reserve later."""
        if not self._size or free_bytes(self._directory) >= wanted + self._size:  # also without what others cut off
            yield
            return
        with self._locks.alone():
            if not may_cut and not self._has_room(wanted):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._directory)
            held = self._cut(wanted)
            try:
                yield
            finally:
                if held:
                    self._grow(held)

    def _has_room(self, wanted: int) -> bool:
        """Whether so much can be written without a part of the reserve: a file system may keep room for root alone,
        which counts as free for nobody."""
        if free_bytes(self._directory) >= wanted:
            return True
        held = self._held()
        self._grow(held + wanted)
        has_room = self._held() >= held + wanted
        with contextlib.suppress(OSError):
            os.truncate(self._path, held)
        return has_room

    def is_needed(self, wanted: int) -> bool:
        """Whether there are fewer than `wanted` bytes free, so that `lent` would cut the reserve."""
        return self._size > 0 and free_bytes(self._directory) < wanted and self._held() > 0

    def ensure(self, wanted: int) -> None:
        """Makes `wanted` bytes free, out of the reserve if necessary. `refill` reserves the unused rest again."""
        if not self._size:
            return
        with self._locks.alone():
            self._locks.begin_loan()
            self._cut_from = max(self._cut_from, self._cut(wanted))

    def give_back(self) -> None:
        """Reserves again what `ensure` has cut off, unless another broker starts or stops."""
        if self._size:
            with self._locks.alone():
                self._give_back()

    def _give_back(self) -> bool:
        self._locks.end_loan()
        if self._locks.is_lent():
            return False
        if self._cut_from:
            self._grow(self._cut_from)
            self._cut_from = 0
        return True

    def refill(self) -> None:
        """Restores the reserve, as far as the same amount would still be free, unless another broker starts or stops.
        May block."""
        if not self._size:
            return
        with self._locks.alone():
            if not self._give_back():
                return
            missing = self._size - self._held()
            if missing > 0 and free_bytes(self._directory) >= missing + self._size:
                self._grow(self._size)
            self._reported = self._reported and self._held() < self._size

    def _cut(self, wanted: int) -> int:
        """Frees the missing bytes. Returns the former size of the reserve, 0 if nothing was freed."""
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
        """Allocates up to `size` bytes, as many as there are. Does nothing if the system cannot allocate, and no more
        if the disk fails: a write that was lent the room has succeeded all the same."""
        if not hasattr(os, "posix_fallocate"):
            return
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            fd = os.open(self._path, _OPEN_FLAGS, 0o644)
            opened.callback(os.close, fd)
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


def _lock_file(fd: int) -> bool:
    deadline = time.monotonic() + _WAIT_MAX_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True


def free_bytes(directory: str) -> int:
    """Returns the space that is left for records on the disk of a directory; 0 if the disk does not tell."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
