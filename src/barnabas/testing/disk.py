"""The disk of a test's broker: it can be full, slow, broken, or stop in the middle of a write.

The faults meet what the log writes and syncs: records, indexes, snapshots. Reads go on. The faults do not affect the
registry and the checkpoint files.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from barnabas.log.directories.disk import Disk
from barnabas.testing.checks import require_number

__all__ = ["DiskFault", "FaultyDisk"]

_CALLS: Final = ("pwritev", "pwrite", "ftruncate", "fdatasync")


class DiskFault:
    """A fault of a disk. It begins when it is made, and ends with its `with` block or with `heal` of the disk."""

    def __init__(self, disk: "FaultyDisk") -> None:
        self._disk = disk

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk.heal()


class FaultyDisk(Disk):
    """A disk with one fault at a time; a new one takes the place of the one before. Without a fault its calls are those
    of every disk."""

    def heal(self) -> None:
        """Ends the fault. Logs take writes again; those that a failed sync or truncation has stopped do so after a
        restart of the broker."""
        ended = self.__dict__.get("ended")
        self.__dict__.clear()
        if ended is not None:
            ended.set()

    def full(self) -> DiskFault:
        """Every write fails for want of space. Producers get KAFKA_STORAGE_ERROR and retry."""
        refuse = _raising(errno.ENOSPC)
        return self._instead(pwritev=refuse, pwrite=refuse)

    def fail(self) -> DiskFault:
        """Every write, cut and sync fails with an I/O error. A log takes writes again as soon as the fault ends, but if
        a sync or a truncation to the leader's log failed only after a restart."""
        return self._instead(**dict.fromkeys(_CALLS, _raising(errno.EIO)))

    def slow(self, seconds: float = 0.1) -> DiskFault:
        """Every write, cut and sync takes so many seconds longer. Raises UsageError for a time out of range."""
        require_number(seconds, 0, 3600, "a disk is slower by 0 to 3600 seconds")
        return self._instead(**{name: _late(getattr(Disk, name), seconds) for name in _CALLS})

    def hang(self) -> DiskFault:
        """Every write, cut and sync waits for the end of the fault, as on a network disk that is not reached."""
        ended = threading.Event()
        fault = self._instead(**{name: _waiting(getattr(Disk, name), ended) for name in _CALLS})
        self.__dict__["ended"] = ended
        return fault

    def torn_write(self) -> DiskFault:
        """Half of the next batch reaches the disk, and nothing after it, as in a power loss: until the fault ends every
        write, cut and sync fails. A restart of the broker finds the half batch, which was never acknowledged, and
        removes it; so does the next write after the fault."""

        def tear(fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
            data = b"".join(buffers)
            Disk.pwrite(fd, data[: len(data) // 2], position)
            self.fail()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return self._instead(pwritev=tear)

    def _instead(self, **calls: Callable[..., Any]) -> DiskFault:
        self.heal()
        self.__dict__.update(calls)
        return DiskFault(self)


def _raising(number: int) -> Callable[..., Any]:
    def refuse(*_: object) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


def _waiting(call: Callable[..., Any], ended: threading.Event) -> Callable[..., Any]:
    def wait(*arguments: Any) -> Any:
        ended.wait()
        return call(*arguments)

    return wait


def _late(call: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def wait(*arguments: Any) -> Any:
        time.sleep(seconds)
        return call(*arguments)

    return wait
