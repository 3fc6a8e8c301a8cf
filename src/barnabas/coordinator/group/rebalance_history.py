"""Why a group rebalanced: the last rebalances of a group, each with its reasons, its members and what it led to."""

from collections import deque
from enum import Enum
from typing import Any, Final

__all__ = ["Rebalance", "RebalanceHistory", "Trigger"]

NOTES_MAX: Final = 16
"""Further reasons that one rebalance keeps; the rest is only counted."""
MEMBERS_MAX: Final = 100
"""Member ids that one rebalance keeps."""


class Trigger(Enum):
    """The kinds of things that end a generation."""

    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    MEMBER_EXPIRED = "member expired"
    METADATA_CHANGED = "member metadata changed"
    LEADER_REJOINED = "leader rejoined"
    STATIC_MEMBER_REPLACED = "static member replaced"
    SYNC_TIMED_OUT = "member did not sync"
    STORE_FAILED = "assignment could not be stored"
    OVER_CAPACITY = "group is larger than group.max.size"


class Rebalance:
    """One rebalance, from what began it to the generation that came out.

    `completed_ms` and `generation_id` are None while it runs. `notes` are what happened meanwhile: more members that
    came or went, members that did not come back in time.
    """

    __slots__ = (
        "completed_ms",
        "from_generation_id",
        "generation_id",
        "leader_id",
        "member_count",
        "members",
        "notes",
        "notes_dropped",
        "reason",
        "started_ms",
        "trigger",
    )

    def __init__(self, started_ms: int, from_generation_id: int, trigger: Trigger, reason: str) -> None:
        self.started_ms = started_ms
        self.from_generation_id = from_generation_id
        self.trigger = trigger
        self.reason = reason
        self.notes: list[str] = []
        self.notes_dropped = 0
        self.completed_ms: int | None = None
        self.generation_id: int | None = None
        self.leader_id: str | None = None
        self.member_count = 0
        self.members: tuple[str, ...] = ()

    def note(self, text: str) -> None:
        """Something more happened before this rebalance was over."""
        if len(self.notes) < NOTES_MAX:
            self.notes.append(text)
        else:
            self.notes_dropped += 1

    def complete(self, now_ms: int, generation_id: int, leader_id: str | None, members: list[str]) -> None:
        """The generation that came out, in the order in which its members joined."""
        self.completed_ms = now_ms
        self.generation_id = generation_id
        self.leader_id = leader_id
        self.member_count = len(members)
        self.members = tuple(members[:MEMBERS_MAX])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"trigger": self.trigger.value, "members": list(self.members), "notes": list(self.notes)}


class RebalanceHistory:
    """A ring of the last rebalances, the newest last."""

    __slots__ = ("_events",)

    def __init__(self, events_max: int) -> None:
        self._events: deque[Rebalance] = deque(maxlen=events_max)

    def begin(self, now_ms: int, from_generation_id: int, trigger: Trigger, reason: str) -> None:
        """A rebalance starts."""
        self._events.append(Rebalance(now_ms, from_generation_id, trigger, reason))

    def note(self, text: str) -> None:
        """Something happened during the rebalance that runs; without one it is not worth keeping."""
        if self._events and self._events[-1].completed_ms is None:
            self._events[-1].note(text)

    def complete(self, now_ms: int, generation_id: int, leader_id: str | None, members: list[str]) -> None:
        """The rebalance that runs has led to this generation."""
        if self._events and self._events[-1].completed_ms is None:
            self._events[-1].complete(now_ms, generation_id, leader_id, members)

    def events(self) -> list[Rebalance]:
        """Oldest first."""
        return list(self._events)
