"""Answers that wait for their clients to read, over all connections: a bound, and their memory given back.

A client that reads never has much here: the socket takes its answers. One that stopped is not read from any more, but
what it asked for before is kept for it. If all of them together hold more than queued.max.response.bytes, those that
have gone longest without taking anything are closed, until there is room for the others.
"""

import asyncio
import ctypes
import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.network.connection import Connection

__all__ = ["QUEUED_ANSWERS_BYTES_MAX", "QueuedResponses"]

QUEUED_ANSWERS_BYTES_MAX: Final = 128 * 1024 * 1024
_TRIM_MIN_BYTES: Final = 32 * 1024 * 1024
_TRIM_AFTER_S: Final = 1.0
"""So that the end of sixty connections is one occasion, and a busy broker trims once a second at most."""
_WARNING_INTERVAL_S: Final = 10.0


class QueuedResponses:
    """Counts the memory of queued answers; slices of files are none. Used on the event loop's thread."""

    __slots__ = (
        "_bytes_max",
        "_holders",
        "_log",
        "_loop",
        "_peak_bytes",
        "_trim",
        "_trim_planned",
        "_warned_at",
        "is_over",
        "size_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bytes_max: int,
        log: logging.Logger,
        *,
        trim: Callable[[], object] | None = None,
    ) -> None:
        """`trim` gives freed memory back to the system; `bytes_max` below 1 is no limit."""
        self._loop = loop
        self._log = log
        self._trim = trim or trim_memory
        self._trim_planned = False
        self._peak_bytes = 0
        """The most that was held since memory was given back the last time."""
        self._holders: dict[Connection, None] = {}
        """Connections with queued answers. First the one that has gone longest without taking a part of them."""
        self._warned_at = -_WARNING_INTERVAL_S
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self.is_over = False
        """Whether `make_room` is due: who is about to make another answer calls it first."""

    def add(self, connection: "Connection", size: int) -> None:
        """Whoever holds too much is closed later: who adds may be in the middle of something."""
        self._holders.setdefault(connection)
        self.size_bytes += size
        self._peak_bytes = max(self._peak_bytes, self.size_bytes)
        if not self.is_over and 0 < self._bytes_max < self.size_bytes:
            self.is_over = True
            self._loop.call_soon(self.make_room)

    def remove(self, connection: "Connection", size: int) -> None:
        self.size_bytes -= size
        if not connection.queued_bytes:
            self._holders.pop(connection, None)
        if self._peak_bytes - self.size_bytes >= _TRIM_MIN_BYTES and not self._trim_planned:
            self._trim_planned = True
            self._loop.call_later(_TRIM_AFTER_S, self._give_back)

    def taken(self, connection: "Connection") -> None:
        """The client took a part of its answers."""
        if self._holders.pop(connection, self) is None:
            self._holders[connection] = None

    def make_room(self) -> None:
        """Close connections until the others hold no more than the bound."""
        if not self.is_over:
            return
        self.is_over = False
        before, closed = self.size_bytes, 0
        too_large = [holder for holder in self._holders if holder.queued_bytes > self._bytes_max]
        for holder in (*too_large, *self._holders):
            if self.size_bytes <= self._bytes_max:
                break
            if not holder.closed:
                closed += 1
                holder.close(f"{holder.queued_bytes} bytes of its answers are not read (queued.max.response.bytes)")
        now = self._loop.time()
        if closed and now - self._warned_at >= _WARNING_INTERVAL_S:
            self._warned_at = now
            self._log.warning(
                "%d bytes of answers waited for clients to read them, queued.max.response.bytes is %d: closed %d"
                " connections that had not read for longest",
                before, self._bytes_max, closed,
            )  # fmt: skip

    def _give_back(self) -> None:
        self._trim_planned = False
        self._peak_bytes = self.size_bytes
        self._trim()


def trim_memory() -> None:
    """Give what is free in the C library's heap back to the system, where the library can: glibc keeps it otherwise."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return trim
