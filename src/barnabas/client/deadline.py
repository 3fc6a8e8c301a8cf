"""One point in time until which an operation, with all of its tries, may last."""

import time

__all__ = ["Deadline"]


class Deadline:
    """`Deadline(30)` passes thirty seconds from now."""

    __slots__ = ("_at", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        left = self._at - time.monotonic()
        return left if left > 0 else 0.0

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._at

    def at_most(self, seconds: float) -> "Deadline":
        """The earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.remaining(), seconds))

    def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the deadline. A signal (Ctrl-C) ends it."""
        time.sleep(min(seconds, self.remaining()))
