"""The bytes of a log's segments, and disks that refuse."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

import pytest


def contents(log) -> bytes:
    return b"".join(segment.read(0, segment.size) for segment in log.segments)


def refuse(code: int):
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which the path of each file is appended that is synced from now on."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return synced


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, part: str, code: int = errno.EIO) -> None:
    """Lets a function of `os` fail for paths that contain this."""
    real = getattr(os, name)

    def call(path, *args: object, **kwargs: object) -> object:
        if part in os.fspath(path):
            raise OSError(code, os.strerror(code), path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, name, call)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """The context in which the process cannot open anything, whatever it closes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
