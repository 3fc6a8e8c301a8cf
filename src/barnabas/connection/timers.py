"""Timers, backoff, and the text of timeouts. The caller supplies the clock."""

import heapq
import random
from collections.abc import Callable
from typing import Final

__all__ = ["NEVER", "Timer", "Timers", "exponential_backoff", "spelled"]

NEVER: Final = float("inf")


def spelled(seconds: float) -> str:
    """Returns the text of a timeout or of the rest of one, such as `0.3 s` or `30 s`."""
    digits = 3 if seconds < 1 else 2 if seconds < 10 else 1
    return f"{round(seconds, digits):.10g} s"


def exponential_backoff(failures: int, initial_s: float, max_s: float, rng: random.Random) -> float:
    """Returns the pause after this number of failures in a row: 0 after none, doubled with each, with 20 % of
    jitter."""
    if failures <= 0:
        return 0.0
    return min(initial_s * 2.0 ** min(failures - 1, 20), max_s) * rng.uniform(0.8, 1.2)


class Timer:
    """An action at a time. `cancel` may be called at any moment."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None] | None) -> None:
        self.when = when
        self.action = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """A heap of timers. Timers of the same time run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = 0

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        timer = Timer(when, action)
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, timer))
        return timer

    def next_deadline(self) -> float:
        """Returns the time of the next timer, NEVER if there is none."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def run(self, now: float) -> None:
        """Runs the actions that are due, also those that an action sets for no later than `now`."""
        while self.next_deadline() <= now:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action()
