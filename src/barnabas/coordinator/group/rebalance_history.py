"""Records the last rebalances of a group with their reasons, members and results."""

from collections import deque
from enum import Enum
from typing import Any, Final

__all__ = ["Rebalance", "RebalanceHistory", "Trigger"]

NOTES_MAX: Final = 16
"""The number of further reasons that are kept for a rebalance. The others are only counted."""
MEMBERS_MAX: Final = 100
"""The number of member ids that are kept for a rebalance."""


class Trigger(Enum):
    """The kinds of events that end a generation."""

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
    """A rebalance, from its reason to the resulting generation.

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
        """Adds another event of the rebalance in progress."""
        if len(self.notes) < NOTES_MAX:
            self.notes.append(text)
        else:
            self.notes_dropped += 1

    def complete(self, now_ms: int, generation_id: int, leader_id: str | None, members: list[str]) -> None:
        """Records the resulting generation, with its members in the order of joining."""
        self.completed_ms = now_ms
        self.generation_id = generation_id
        self.leader_id = leader_id
        self.member_count = len(members)
        self.members = tuple(members[:MEMBERS_MAX])

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"trigger": self.trigger.value, "members": list(self.members), "notes": list(self.notes)}


class RebalanceHistory:
    """The last rebalances of a group, in a ring."""

    __slots__ = ("_events",)

    def __init__(self, events_max: int) -> None:
        self._events: deque[Rebalance] = deque(maxlen=events_max)

    def begin(self, now_ms: int, from_generation_id: int, trigger: Trigger, reason: str) -> None:
        """Records the start of a rebalance."""
        self._events.append(Rebalance(now_ms, from_generation_id, trigger, reason))

    def note(self, text: str) -> None:
        """Adds an event to the rebalance in progress, if there is one."""
        if self._events and self._events[-1].completed_ms is None:
            self._events[-1].note(text)

    def complete(self, now_ms: int, generation_id: int, leader_id: str | None, members: list[str]) -> None:
        """Records the generation that results from the rebalance in progress."""
        if self._events and self._events[-1].completed_ms is None:
            self._events[-1].complete(now_ms, generation_id, leader_id, members)

    def events(self) -> list[Rebalance]:
        return list(self._events)
