"""The rebalances that a member took part in, and the one in progress."""

from collections import deque
from typing import Final, NamedTuple

__all__ = ["Rebalance", "RebalanceHistory"]

KEPT: Final = 20


class Rebalance(NamedTuple):
    """A rebalance of this member. Its times are those of the network client's clock."""

    reason: str
    began_at: float
    ended_at: float | None
    """The time of the end, None while the rebalance is in progress."""
    generation_id: int
    setbacks: tuple[str, ...] = ()
    """The errors that made the rebalance start again, in order."""


class RebalanceHistory:
    def __init__(self) -> None:
        self.past: deque[Rebalance] = deque(maxlen=KEPT)
        self.count = 0
        self.reason = ""
        """The reason of the last rebalance."""
        self._began_at: float | None = None
        self._setbacks: list[str] = []

    @property
    def is_under_way(self) -> bool:
        return self._began_at is not None

    def begin(self, now: float, reason: str) -> None:
        """Notes the begin of a rebalance. A retry of the rebalance in progress does not count as a new one."""
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
        """Returns the rebalance in progress, if there is one."""
        if self._began_at is None:
            return None
        return Rebalance(self.reason, self._began_at, None, -1, tuple(self._setbacks))
