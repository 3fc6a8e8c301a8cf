"""Limits bytes per second. No clock here: times are arguments, seconds of a clock that never moves back."""

import math

__all__ = ["RateLimiter"]


class RateLimiter:
    """A balance of bytes that grows by the rate, and may be overdrawn once.

    The caller asks `is_exceeded` before it takes bytes and tells their number afterwards, so one take may be larger
    than what is left. The debt has to be made good by waiting, however large it is: in any T seconds no more than
    rate * (T + windows * window_s) bytes are taken, and one take. As in Kafka, what was not taken in the last `windows`
    may be taken later; but after all of these were idle, only as much as one window has.
    """

    __slots__ = ("_at", "_balance", "_taken_at", "_window_s", "_windows_s", "rate")

    def __init__(self, rate: float, now: float, *, windows: int = 11, window_s: float = 1.0) -> None:
        self.rate = rate
        """The bytes of a second. With 0, nothing may be taken."""
        self._window_s = window_s
        self._windows_s = windows * window_s
        self._balance = rate * window_s
        self._at = now
        self._taken_at = -math.inf

    def set_rate(self, rate: float, now: float) -> None:
        """Changes the rate. A debt stays; what was saved is saved at most as far as the new rate allows."""
        self._settle(now)
        self.rate = rate
        self._settle(now)

    @property
    def bytes_at_once(self) -> int:
        """The bytes of one window: whoever takes no more at once overdraws by no more."""
        return max(1, int(self.rate * self._window_s))

    def is_exceeded(self, now: float, planned: int = 0) -> bool:
        """Returns whether nothing may be taken now, after `planned` bytes that are not told yet."""
        self._settle(now)
        return self._balance < planned or self.rate == 0

    def take(self, count: int, now: float) -> None:
        """Notes that bytes were taken, also where they exceed the rate."""
        self._settle(now)
        self._balance -= count
        self._taken_at = now

    def wait_s(self, now: float) -> float:
        """Returns the seconds until bytes may be taken, if nobody takes any before; infinity if the rate is 0."""
        self._settle(now)
        if self.rate == 0:
            return math.inf
        return max(0.0, -self._balance / self.rate)

    def _settle(self, now: float) -> None:
        is_idle = now - self._taken_at > self._windows_s
        saved_max = self.rate * (self._window_s if is_idle else self._windows_s)
        self._balance = min(self._balance + self.rate * (now - self._at), saved_max)
        self._at = now
