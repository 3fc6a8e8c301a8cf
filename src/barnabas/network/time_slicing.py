"""Long work on the event loop, cut into slices, so that nobody waits for the whole of it.

Everything that is cut shares one queue: a turn of the loop runs slices for TURN_S at most, one for each in line and
then round again, and goes back to the sockets. However many connections bring long work, others wait for one turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

__all__ = ["SLICE_S", "TURN_S", "Slices", "TimeSlicer"]

SLICE_S: Final = 0.001
"""What one connection, or one long request, may take before the next in line has its slice."""
TURN_S: Final = 0.004
"""What all slices together may take before the loop looks at the sockets again."""

T = TypeVar("T")
Slices = Generator[None, None, T]
"""Work that yields between its pieces, each much shorter than a slice, and returns its result."""


class TimeSlicer:
    """The queue. Used on the event loop's thread."""

    __slots__ = ("_loop", "_queue", "_running")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Callable[[], bool]] = deque()
        self._running = False
        """Whether `_run` is being executed or planned."""

    def enter(self, run_slice: Callable[[], bool]) -> None:
        """Call `run_slice` when its turn comes, again and again until it returns False: nothing is left to do.

        It keeps to SLICE_S itself, by `advance` or by the clock. If it raises, it is not called again, and the error
        goes to the loop's handler.
        """
        self._queue.append(run_slice)
        if not self._running:
            self._running = True
            self._loop.call_soon(self._run)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call it once, when its turn comes."""

        def run_slice() -> bool:
            callback()
            return False

        self.enter(run_slice)

    def advance(self, slices: Slices[T]) -> None:
        """Run pieces until the slice is used up. Raises StopIteration with the result when all is done."""
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
