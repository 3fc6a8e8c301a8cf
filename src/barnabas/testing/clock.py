"""The clock of a test's broker, which can be wrong."""

import time

from barnabas.clock import SYSTEM_CLOCK
from barnabas.testing.checks import require_number

__all__ = ["SkewedClock"]

_SKEW_MAX_S = 100 * 365 * 86_400


class SkewedClock:
    """The machine's clocks. The one that people and records use may be ahead or behind; timeouts are not affected."""

    def __init__(self) -> None:
        self._skew_ms = 0

    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return SYSTEM_CLOCK.wall_ms() + self._skew_ms

    def skew(self, seconds: float = 3600) -> None:
        """Puts the clock so many seconds ahead of the machine's, or behind it if negative. Raises UsageError for more
        than a hundred years."""
        require_number(seconds, -_SKEW_MAX_S, _SKEW_MAX_S, f"a clock is wrong by at most {_SKEW_MAX_S} seconds")
        self._skew_ms = round(seconds * 1000)

    def heal(self) -> None:
        """Makes the clock right again."""
        self._skew_ms = 0
