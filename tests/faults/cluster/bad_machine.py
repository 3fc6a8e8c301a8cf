"""A machine for a process, whose disks fail or stand still, and whose clock jumps.

`bad_machine.c` is preloaded into the process and stands in front of the C library's calls on files and of the clock, so
that SQLite's calls are met as well as those of Python. What it does, this module writes into a file that both map.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from enum import IntFlag
from pathlib import Path

__all__ = ["BadMachine", "Calls", "build"]

SOURCE = Path(__file__).with_suffix(".c")
_CLOCK, _FAULT = struct.Struct("=q"), struct.Struct("=iiii488s")
_HANGS = -1


class Calls(IntFlag):
    """The kinds of calls on files."""

    READS = 1
    WRITES = 2
    SYNCS = 4
    NAMES = 8
    """Renames, links, removals, and new directories."""
    ALL = 15


def build(library: Path) -> None:
    """Compiles what is preloaded. Raises RuntimeError where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("disks that fail need a C compiler: cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True)


class BadMachine:
    """One fault of its disks at a time, and one time of its clock, which last over restarts of the process."""

    def __init__(self, library: Path, file: Path) -> None:
        self.environment = {"LD_PRELOAD": str(library), "BAD_MACHINE": str(file)}
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self.set_clock(0.0)
        self.heal()

    def close(self) -> None:
        os.close(self._fd)

    def set_clock(self, ahead_s: float) -> None:
        os.pwrite(self._fd, _CLOCK.pack(round(ahead_s * 1e9)), 0)

    def fail(self, path: str, calls: Calls, one_in: int = 1) -> None:
        """Every so many-th call fails on files whose path begins like this. What ends with a slash is a directory, and
        is met itself."""
        self._meet(errno.EIO, path, calls, one_in)

    def hang(self, path: str, calls: Calls) -> None:
        """Calls on these files wait for the end of the fault."""
        self._meet(_HANGS, path, calls, 1)

    def heal(self) -> None:
        self._meet(0, "", Calls(0), 1)

    def _meet(self, error: int, path: str, calls: Calls, one_in: int) -> None:
        os.pwrite(self._fd, _FAULT.pack(error, calls, one_in, 0, path.encode()), _CLOCK.size)
