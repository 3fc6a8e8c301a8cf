"""Ends a broker's process when its memory has run out in the middle of something.

Nobody knows then what was done and what was not, and what was done by half is nowhere but in this memory. The next
start reads what is on the disk, as after a crash. So whoever goes on after exceptions of any kind passes them to
`end_if_out_of_memory` first. Where nothing has changed yet, or only what belongs to one connection, a MemoryError is
caught by its name, and the broker goes on.

A broker in the process of another program (`barnabas.testing`) must not end that: it goes on as after a bug.
"""

from collections.abc import Callable
from typing import Final

from barnabas.errors import BarnabasError

__all__ = ["WAY_OUT", "NoRoom", "end_if_out_of_memory", "end_with", "is_lack_of_memory"]

WAY_OUT: Final = "give the broker more memory (ulimit -v, MemoryMax=, the limit of its container, the machine)"
_end: Callable[[BaseException], object] | None = None


class NoRoom(BarnabasError):
    """Memory has run out for a request that nobody has begun, or for the response to one that is done. The connection
    is closed, as if it had been lost at that moment."""


def end_with(end: Callable[[BaseException], object] | None) -> None:
    """Has `end` end this process; None for a process that is not the broker's own."""
    global _end
    _end = end


def is_lack_of_memory(error: object) -> bool:
    """Returns whether an exception says that memory has run out. Where there is none for the MemoryError itself, and
    for none of those that follow it, Python gives up and raises a RecursionError."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RecursionError) and isinstance(error.__context__, MemoryError)
    )


def end_if_out_of_memory(error: object) -> None:
    """Ends the process if the error says that memory has run out and the process is a broker's own; returns
    otherwise."""
    if _end is not None and isinstance(error, BaseException) and is_lack_of_memory(error):
        _end(error)
