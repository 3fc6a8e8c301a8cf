"""An allocator for a broker that has no memory for a few objects, whenever the harness wants it.

As a program, it serves as a broker whose allocations can fail: ``bad_allocator.py serve …``. `_testcapi`, which is
there to test CPython, has them fail, so Python's own objects are met, which a limit of the process hardly reaches: the
interpreter keeps memory for them. A signal says that there is a new order in a file that the program and the harness
share.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

__all__ = ["PROGRAM", "BadAllocator", "listening", "why_not"]

PROGRAM = Path(__file__)
_FILE = "BAD_ALLOCATOR"
"""The variable of the environment that names the shared file."""
_ORDER, _LISTENER = struct.Struct("=iii"), struct.Struct("=ii")
"""The harness writes the first one: its number, how many allocations go well, and how many fail then. The process
writes the other one behind it: its id, and the number of the order that it follows."""
_NEVER = 2**31 - 1


def why_not() -> str:
    """Returns why no allocation can fail here, or nothing."""
    try:
        from _testcapi import set_nomemory  # noqa: F401
    except ImportError:
        return "this Python has no _testcapi.set_nomemory"
    return ""


class BadAllocator:
    """The allocator of a broker, whichever process that is, as the harness sees it. An order is for the process that
    listens at that moment; one that starts later has all memory until the next one."""

    def __init__(self, file: Path) -> None:
        self.environment = {_FILE: str(file)}
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        os.ftruncate(self._fd, _ORDER.size + _LISTENER.size)
        self._number = 0

    def close(self) -> None:
        os.close(self._fd)

    def deny(self, process: subprocess.Popen[bytes], after: int, count: int) -> None:
        """Has so many allocations fail, after a number of others."""
        self._say(process, after, count)

    def allow(self, process: subprocess.Popen[bytes]) -> None:
        """Has no allocation fail any more, once the process has `heard` of it."""
        self._say(process, 0, 0)

    def heard(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether the last order is followed, or nobody is there to do so."""
        return not self._listens(process) or self._listener()[1] == self._number

    def _say(self, process: subprocess.Popen[bytes], after: int, count: int) -> None:
        if self._listens(process):  # the signal would end any other process
            self._number += 1
            os.pwrite(self._fd, _ORDER.pack(self._number, after, count), 0)
            process.send_signal(signal.SIGUSR2)

    def _listens(self, process: subprocess.Popen[bytes]) -> bool:
        return process.poll() is None and self._listener()[0] == process.pid

    def _listener(self) -> tuple[int, int]:
        pid, number = _LISTENER.unpack(os.pread(self._fd, _LISTENER.size, _ORDER.size))
        return pid, number


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Has this process follow the orders of the harness that has started it, if there is one.

    They are for what runs on an event loop. What fails before, while code is loaded, CPython tells with errors that
    have other names.
    """
    if _FILE not in os.environ:
        yield
        return
    from _testcapi import set_nomemory

    fd = os.open(os.environ[_FILE], os.O_RDWR)
    shared = mmap.mmap(fd, _ORDER.size + _LISTENER.size)
    os.close(fd)

    def obey(_number: int, _frame: FrameType | None) -> None:
        set_nomemory(_NEVER)  # not here
        number, after, count = _ORDER.unpack_from(shared)
        _LISTENER.pack_into(shared, _ORDER.size, os.getpid(), number)
        if count and asyncio._get_running_loop() is not None:
            set_nomemory(after, after + count)

    set_nomemory(_NEVER)  # puts it in front of the allocator while there are no other threads
    signal.signal(signal.SIGUSR2, obey)
    _LISTENER.pack_into(shared, _ORDER.size, os.getpid(), _ORDER.unpack_from(shared)[0])
    try:
        yield
    finally:
        set_nomemory(_NEVER)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # any other handler would go before the process does
        _LISTENER.pack_into(shared, _ORDER.size, 0, 0)


if __name__ == "__main__":
    from barnabas.__main__ import main

    with listening():
        main()
