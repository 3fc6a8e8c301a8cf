"""Bounds the responses that wait for their clients to read them, over all connections.

The socket takes the responses of a client that reads. The broker does not read from a client that stopped reading, but
keeps the responses to its earlier requests. If all connections together hold more than queued.max.response.bytes, the
connections that have read nothing for longest are closed, until the others are within the bound.
"""

import asyncio
import ctypes
import logging
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

__all__ = ["QUEUED_RESPONSES_BYTES_MAX", "QueuedResponses"]

QUEUED_RESPONSES_BYTES_MAX: Final = 128 * 1024 * 1024
_TRIM_MIN_BYTES: Final = 32 * 1024 * 1024
_TRIM_AFTER_S: Final = 1.0
"""The end of many connections trims the heap once, and a busy broker trims at most once a second."""
_WARNING_INTERVAL_S: Final = 10.0


class ResponseHolder(Protocol):
    """A connection with queued responses."""

    @property
    def queued_bytes(self) -> int: ...

    @property
    def closed(self) -> bool: ...

    def close(self, reason: str) -> None: ...


class QueuedResponses:
    """Counts the memory of queued responses without slices of files. Used on the event loop's thread."""

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
        """`trim` gives freed memory back to the system. A `bytes_max` below 1 means no limit."""
        self._loop = loop
        self._log = log
        self._trim = trim or trim_memory
        self._trim_planned = False
        self._peak_bytes = 0
        """The largest `size_bytes` since memory was last given back."""
        self._holders: dict[ResponseHolder, None] = {}
        """The connections with queued responses, first the one whose client has read nothing for longest."""
        self._warned_at = -_WARNING_INTERVAL_S
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self.is_over = False
        """Whether `make_room` is due. Callers that are about to make a response call it first."""

    def add(self, connection: ResponseHolder, size: int) -> None:
        """Counts `size` more bytes. Connections are closed in the next turn of the loop, not within the caller's
        work."""
        self._holders.setdefault(connection)
        self.size_bytes += size
        self._peak_bytes = max(self._peak_bytes, self.size_bytes)
        if not self.is_over and 0 < self._bytes_max < self.size_bytes:
            self.is_over = True
            self._loop.call_soon(self.make_room)

    def remove(self, connection: ResponseHolder, size: int) -> None:
        self.size_bytes -= size
        if not connection.queued_bytes:
            self._holders.pop(connection, None)
        if self._peak_bytes - self.size_bytes >= _TRIM_MIN_BYTES and not self._trim_planned:
            self._trim_planned = True
            self._loop.call_later(_TRIM_AFTER_S, self._give_back)

    def mark_progress(self, connection: ResponseHolder) -> None:
        """Notes that the client has read a part of its responses."""
        if self._holders.pop(connection, self) is None:
            self._holders[connection] = None

    def make_room(self) -> None:
        """Closes connections until the others are within the bound."""
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
    """Gives the free memory of the C library's heap back to the system. glibc keeps it otherwise."""
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
