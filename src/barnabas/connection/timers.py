"""What is to happen at a time, by a clock that is handed in."""

import heapq
from collections.abc import Callable
from typing import Final

__all__ = ["NEVER", "Timer", "Timers", "spelled"]

NEVER: Final = float("inf")


def spelled(seconds: float) -> str:
    """`0.3 s`, `30 s`: of what may be left of another timeout, as people gave that."""
    digits = 3 if seconds < 1 else 2 if seconds < 10 else 1
    return f"{round(seconds, digits):.10g} s"


class Timer:
    """One call at a time. `cancel` may be called at any moment."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None] | None) -> None:
        self.when = when
        self.action = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """A heap of timers; those of one time go off in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = 0

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        timer = Timer(when, action)
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, timer))
        return timer

    def next_deadline(self) -> float:
        """When the next one goes off; NEVER if there is none."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def run(self, now: float) -> None:
        """Call what is due, also what a call sets for no later than now."""
        while self.next_deadline() <= now:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action()
