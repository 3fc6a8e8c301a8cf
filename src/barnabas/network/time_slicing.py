"""Cuts long work on the event loop into slices, so that other connections are served in between.

All long work shares one queue. A turn of the event loop runs slices for TURN_S at most, in rotation, and then serves
the sockets. However many connections bring long work, the others wait for one turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from barnabas.network.after_requests import AfterRequests

__all__ = ["SLICE_S", "TURN_S", "Slices", "TimeSlicer"]

SLICE_S: Final = 0.001
"""The time of one connection, or of one long request, before the next one in the queue has its slice."""
TURN_S: Final = 0.004
"""The time of all slices together before the loop serves the sockets again."""

T = TypeVar("T")
Slices = Generator[None, None, T]
"""Work that yields between its steps, each much shorter than a slice, and returns its result."""


class TimeSlicer:
    """The queue of long work. Used on the event loop's thread."""

    __slots__ = ("_loop", "_queue", "_running", "after_requests")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Callable[[], bool]] = deque()
        self._running = False
        """Whether `_run` is running or scheduled."""
        self.after_requests = AfterRequests(loop)
        """Short work that the requests of a turn share."""

    def add(self, run_slice: Callable[[], bool]) -> None:
        """Calls `run_slice` in rotation with other work, until it returns False because nothing is left to do.

        `run_slice` itself keeps to SLICE_S, by `advance` or by the clock. If it raises, it is not called again, and the
        loop's exception handler gets the error.
        """
        self._queue.append(run_slice)
        if not self._running:
            self._running = True
            self._loop.call_soon(self._run)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Calls `callback` once, in rotation with other work."""

        def run_slice() -> bool:
            callback()
            return False

        self.add(run_slice)

    def advance(self, slices: Slices[T]) -> None:
        """Runs steps until the slice is used up. Raises StopIteration with the result after the last step."""
        until = self._loop.time() + SLICE_S
        next(slices)
        while self._loop.time() < until:
            next(slices)

    def _run(self) -> None:
        queue = self._queue
        until = self._loop.time() + TURN_S
        try:
            while queue:
                run_slice = queue.popleft()
                if run_slice():
                    queue.append(run_slice)
                if self._loop.time() >= until:
                    break
        finally:
            self._running = bool(queue)
            if queue:
                self._loop.call_soon(self._run)
