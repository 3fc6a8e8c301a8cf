"""The bytes per second of the throttled replicas of a broker, and who waits for them (KIP-73).

Where we differ from Kafka: a rate that was exceeded is made good in full, however low it is, and whoever waits is woken
when it may go on, in turn.
"""

import asyncio
from typing import Final, Protocol

from barnabas.config.log_config import LONG_MAX
from barnabas.replication.rate_limiter import RateLimiter

__all__ = ["QuotaWaiter", "ReplicationQuota"]

UNLIMITED: Final = LONG_MAX
_WAIT_MIN_S: Final = 0.001
"""A shorter wait could be too short by the rounding of floating-point numbers, again and again."""


class QuotaWaiter(Protocol):
    """Something that does not go on because the rate is exceeded."""

    def quota_available(self) -> None:
        """Called once when it may go on. It waits again if it has to."""


class ReplicationQuota:
    """The bytes per second of all throttled replicas of this broker, as leader or as follower."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rate: float, *, windows: int = 11, window_s: float = 1.0
    ) -> None:
        self._loop = loop
        self._limiter = RateLimiter(rate, loop.time(), windows=windows, window_s=window_s)
        self._waiters: dict[QuotaWaiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_limited(self) -> bool:
        return self._limiter.rate < UNLIMITED

    @property
    def bytes_at_once(self) -> int:
        """The most bytes that one partition should take at once."""
        return self._limiter.bytes_at_once

    def set_rate(self, rate: float) -> None:
        if rate != self._limiter.rate:
            self._limiter.set_rate(rate, self._loop.time())
            self._schedule()

    def is_exceeded(self, planned: int = 0) -> bool:
        """Returns whether nothing may be taken now, after `planned` bytes that are not recorded yet."""
        return self._limiter.is_exceeded(self._loop.time(), planned)

    def record(self, count: int) -> None:
        """Notes bytes that were taken."""
        self._limiter.take(count, self._loop.time())

    def wait(self, waiter: QuotaWaiter) -> None:
        """Calls `quota_available` of the waiter when the rate is no longer exceeded, after those that wait already. A
        rate of 0 ends by a change of settings, by which all partitions are looked at again."""
        if self._limiter.rate > 0:
            self._waiters[waiter] = None
            if self._timer is None:
                self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._limiter.rate == 0:
            self._waiters.clear()
        if self._waiters:
            wait_s = max(self._limiter.wait_s(self._loop.time()), _WAIT_MIN_S)
            self._timer = self._loop.call_later(wait_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        try:
            while self._waiters and not self.is_exceeded():
                waiter = next(iter(self._waiters))
                del self._waiters[waiter]
                waiter.quota_available()
        finally:
            self._schedule()
