"""The clock that constructors take, so that tests can pass a simulated one."""

import time
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """Two readings of time: one that only moves forward, one that people and records use."""

    def monotonic(self) -> float:
        """Seconds on a clock that never moves back; only differences mean anything."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def wall_ms() -> int:
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = SystemClock()
