"""A file system whose n-th call fails, and that forgets what was not synced when the machine goes down.

It stands in front of the functions of `os`, of `open` and of `mmap` for what lies below one directory. Syncs are not
passed on: what a file held when it was synced is remembered, and so are the names in a directory.
"""

import builtins
import errno
import logging
import mmap
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from barnabas.log.directories.disk import Disk

BY_PATH = ("listdir", "mkdir", "open", "rename", "replace", "scandir", "stat", "truncate", "unlink", "utime")
BY_DESCRIPTOR = ("fdatasync", "fstat", "fsync", "ftruncate", "pread", "pwrite", "pwritev", "write", "writev")
OPENS = frozenset(("open", "open()", "scandir", "listdir", "mmap"))
TAKES_ROOM = frozenset(
    ("open", "mkdir", "rename", "replace", "ftruncate", "fdatasync", "fsync", "pwrite", "pwritev", "write", "writev")
)
WRITES = frozenset(("pwrite", "pwritev", "write", "writev"))

ENDINGS = ("killed", "power lost", "power lost, names last")
EVERY_FAULT = os.environ.get("BARNABAS_EVERY_FAULT") == "1"
PART = 6
"""One of so many calls is hit, unless it is every one."""


@contextmanager
def silenced(name: str) -> Iterator[None]:
    """Where failures are provoked by the hundred they are not worth a line each: the logger of this name is quiet."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


class Call(NamedTuple):
    """One call that the program under test made."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} {os.path.basename(self.path)}"


class Fault(NamedTuple):
    """What happens at a call, and, if it `lasts`, at every later one that it can happen to."""

    number: int
    kind: str
    lasts: bool = False

    def strikes(self, number: int, call: str) -> bool:
        if number != self.number and not (self.lasts and number > self.number):
            return False
        return can_meet(call, self.kind)

    def __str__(self) -> str:
        return f"call {self.number}: {self.kind}{' from then on' if self.lasts else ''}"


def can_meet(call: str, kind: str) -> bool:
    """Whether a call can fail in this way."""
    if kind == "short write":
        return call in WRITES
    if kind in ("EMFILE", "ENFILE"):
        return call in OPENS
    return kind == "EIO" or call in TAKES_ROOM


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Where a thousand runs make ten thousand files, if the machine has such a place."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


def faults_at(calls: Sequence[Call], kind: str, *, lasts: bool) -> Iterator[tuple[Fault, str]]:
    """A fault for one of three calls that can meet it, and how its run ends. Neighbours end in different ways.

    With BARNABAS_EVERY_FAULT=1 it is every call, with all endings.
    """
    for number, ending in chosen([number for number, call in enumerate(calls) if can_meet(call.name, kind)]):
        yield Fault(number, kind, lasts), ending


def chosen(numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Which of these calls are hit, with the ways in which their runs end. What is chosen is the same in each run; no
    rhythm of the calls decides it."""
    if not EVERY_FAULT:
        numbers = sorted(random.Random(len(numbers)).sample(numbers, -(-len(numbers) // PART)))
    for turn, number in enumerate(numbers):
        for ending in ENDINGS if EVERY_FAULT else (ENDINGS[turn % len(ENDINGS)],):
            yield number, ending


def _looked_up(name: str) -> Any:
    """A function that looks for another one of `os` when it is called."""
    return staticmethod(lambda *args: getattr(os, name)(*args))


class FaultyFileSystem:
    """Below `root`. `calls` are those that were made since `watch` began."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.calls: list[Call] = []
        self.fault: Fault | None = None
        self.struck = 0
        self.most_open = 0
        """So many descriptors were open at a time."""
        self._paths: dict[int, str] = {}
        self._kept: dict[int, int] = {}
        """A descriptor for every inode that was ever opened: numbers are not given again, contents stay."""
        self._synced: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        """The synced names in each directory, by its inode: it may get another name."""
        self._directories: set[int] = set()
        self._real = {name: getattr(os, name) for name in (*BY_PATH, *BY_DESCRIPTOR, "close")}

    @contextmanager
    def watch(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in BY_PATH:
                stack.enter_context(mock.patch.object(os, name, self._by_path(name)))
            for name in BY_DESCRIPTOR:
                stack.enter_context(mock.patch.object(os, name, self._by_descriptor(name)))
                if hasattr(Disk, name):
                    stack.enter_context(mock.patch.object(Disk, name, _looked_up(name)))
            stack.enter_context(mock.patch.object(os, "close", self._close))
            stack.enter_context(mock.patch.object(builtins, "open", self._open_stream(builtins.open)))
            stack.enter_context(mock.patch.object(mmap, "mmap", self._mmap(mmap.mmap)))
            yield

    def close(self) -> None:
        for fd in self._kept.values():
            self._real["close"](fd)
        self._kept.clear()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _mine(self, path: Any) -> bool:
        return isinstance(path, str) and path.startswith(self.root)

    def _meet(self, name: str, path: str) -> bool:
        """Count a call; raises what the fault says, or returns that a write is to be short."""
        number = len(self.calls)
        self.calls.append(Call(name, path))
        fault = self.fault
        if fault is None or not fault.strikes(number, name):
            return False
        self.struck += 1
        if fault.kind == "short write":
            return True
        code = getattr(errno, fault.kind)
        raise OSError(code, os.strerror(code), path)

    def _by_path(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int) and path in self._paths:
                self._meet(name, self._paths[path])
            elif self._mine(path):
                self._meet(name, path)
                if name == "open":
                    return self._note_open(real(path, *args, **kwargs), path)
            return real(path, *args, **kwargs)

        return call

    def _note_open(self, fd: int, path: str) -> int:
        self._paths[fd] = path
        self.most_open = max(self.most_open, len(self._paths))
        self._keep(path)
        return fd

    def _keep(self, path: str) -> None:
        status = self._real["stat"](path)
        if status.st_ino not in self._kept:
            self._kept[status.st_ino] = self._real["open"](path, os.O_RDONLY)

    def _by_descriptor(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(fd: Any, *args: Any, **kwargs: Any) -> Any:
            if fd not in self._paths:
                return real(fd, *args, **kwargs)
            short = self._meet(name, self._paths[fd])
            if short:
                return self._write_half(name, fd, *args)
            if name in ("fsync", "fdatasync"):
                return self._note_synced(fd)
            return real(fd, *args, **kwargs)

        return call

    def _write_half(self, name: str, fd: int, data: Any, *position: int) -> int:
        whole = b"".join(data) if name in ("pwritev", "writev") else bytes(data)
        half = whole[: max(len(whole) // 2, 1)]
        return self._real["pwrite" if position else "write"](fd, half, *position)

    def _note_synced(self, fd: int) -> None:
        status = self._real["fstat"](fd)
        inode = status.st_ino
        if stat.S_ISDIR(status.st_mode):
            self._names[inode] = self._listing(self._paths[fd])
        else:
            self._synced[inode] = self._contents(inode)

    def sync_names(self, path: str) -> None:
        """As an fsync of the directory, which was made before the watch."""
        self._names[self._real["stat"](path).st_ino] = self._listing(path)

    def _listing(self, path: str) -> dict[str, int]:
        with self._real["scandir"](path) as entries:
            found = list(entries)
        self._directories.update(entry.inode() for entry in found if entry.is_dir())
        return {entry.name: entry.inode() for entry in found}

    def _contents(self, inode: int) -> bytes:
        fd = self._kept[inode]
        return self._real["pread"](fd, self._real["fstat"](fd).st_size, 0)

    def _close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        self._real["close"](fd)

    def _open_stream(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._mine(path):
                self._meet("open()", path)
            return real(path, *args, **kwargs)

        return call

    def _mmap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *args: Any, **kwargs: Any) -> Any:
            if fd in self._paths:
                self._meet("mmap", self._paths[fd])
            return real(fd, *args, **kwargs)

        return call

    # -- the machine goes down -----------------------------------------------------------------------------------------

    def lose_power(self, *, names_last: bool) -> None:
        """Leave what was synced: of the contents, and of the names unless they happen to be there all the same."""
        tree = {inode: dict(names) for inode, names in self._names.items()}
        if names_last:
            for path, _, _ in os.walk(self.root):
                tree[os.stat(path).st_ino] = self._listing(path)
        files: dict[str, bytes] = {}
        kept_directories: list[str] = []

        def collect(directory: int, path: str) -> None:
            kept_directories.append(path)
            for name, inode in tree.get(directory, {}).items():
                if inode in self._directories:
                    collect(inode, f"{path}/{name}")
                else:
                    files[f"{path}/{name}"] = self._synced.get(inode, b"")

        collect(os.stat(self.root).st_ino, self.root)
        for name in os.listdir(self.root):
            path = f"{self.root}/{name}"
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for path in kept_directories:
            os.makedirs(path, exist_ok=True)
        for path, data in files.items():
            with open(path, "wb") as file:
                file.write(data)
