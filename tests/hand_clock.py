"""A clock that a test moves."""

__all__ = ["HandClock"]


class HandClock:
    """Time moves when a test sets `now`, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        """A time of 2023: brokers refuse timestamps that are far away from their clock."""
        return 1_700_000_000_000 + int(self.now * 1000)
