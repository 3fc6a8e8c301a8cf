"""The rebalances that a member took part in, and the one under way."""

from collections import deque
from typing import Final, NamedTuple

__all__ = ["Rebalance", "RebalanceLog"]

KEPT: Final = 20


class Rebalance(NamedTuple):
    """One rebalance as this member saw it; times by the network client's clock."""

    reason: str
    began_at: float
    ended_at: float | None
    """None while it is under way."""
    generation_id: int
    setbacks: tuple[str, ...] = ()
    """What made it start over, in order."""


class RebalanceLog:
    """See the module."""

    def __init__(self) -> None:
        self.past: deque[Rebalance] = deque(maxlen=KEPT)
        self.count = 0
        self.reason = ""
        """Why the last one began."""
        self._began_at: float | None = None
        self._setbacks: list[str] = []

    @property
    def is_under_way(self) -> bool:
        return self._began_at is not None

    def begin(self, now: float, reason: str) -> None:
        """One more try of the one under way is none of its own."""
        if self._began_at is None:
            self._began_at, self.reason, self._setbacks = now, reason, []

    def set_back(self, why: str) -> None:
        self._setbacks.append(why)

    def end(self, now: float, generation_id: int) -> None:
        if self._began_at is not None:
            self.past.append(Rebalance(self.reason, self._began_at, now, generation_id, tuple(self._setbacks)))
            self.count += 1
            self._began_at = None

    def under_way(self) -> Rebalance | None:
        """The one that has begun and not ended."""
        if self._began_at is None:
            return None
        return Rebalance(self.reason, self._began_at, None, -1, tuple(self._setbacks))
