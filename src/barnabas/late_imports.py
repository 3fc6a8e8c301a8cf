"""Imports modules at their first use, also when the process has no descriptor left by then."""

import contextlib
import errno
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

__all__ = ["import_late", "keep_descriptor"]

_kept: list[int] = []


def keep_descriptor() -> None:
    """Sets a descriptor aside for `import_late`. Raises OSError if there is none."""
    if not _kept:
        _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def import_late(name: str) -> ModuleType:
    """Returns a module, and imports it if it is not there yet: with the descriptor that is set aside, where it is
    needed. Raises ImportError, OSError: the latter also for a compiled module for which the system has no memory."""
    try:
        return import_module(name)
    except (OSError, ImportError):  # the latter comes from a compiled module
        with _lent():
            return _imported(name)


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        if error.path is None or not error.path.endswith(tuple(EXTENSION_SUFFIXES)):
            raise
        reason = error.msg.rpartition(": ")[2]
        lacks = {os.strerror(number): number for number in (errno.EMFILE, errno.ENFILE)}
        raise OSError(lacks.get(reason, errno.ENOMEM), reason, error.path) from None


@contextlib.contextmanager
def _lent() -> Iterator[None]:
    try:
        os.close(_kept.pop())
    except IndexError:  # nobody has set one aside, or another thread needs it at this moment
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            keep_descriptor()
