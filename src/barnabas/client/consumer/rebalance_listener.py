"""The application's rebalance listener: its callbacks, and the events that it receives."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.types import TopicPartition

__all__ = ["ASSIGNED", "LOST", "REVOKED", "Callback", "RebalanceEvent", "RebalanceListener"]

REVOKED: Final = "revoked"
ASSIGNED: Final = "assigned"
LOST: Final = "lost"

Callback = Callable[[Any, tuple[TopicPartition, ...]], object]
"""A function of the consumer and the partitions."""


class RebalanceEvent(NamedTuple):
    """An event for the listener: `revoked` before partitions are given up, `lost` after they were lost, `assigned`
    before new partitions are read."""

    kind: str
    partitions: tuple[TopicPartition, ...]


class RebalanceListener(NamedTuple):
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    def callback_for(self, event: RebalanceEvent) -> Callback | None:
        """Returns the callback for an event, if there is one. Without `on_lost`, `on_revoked` gets lost partitions,
        too. Without partitions only `on_assigned` is called."""
        if event.kind == ASSIGNED:
            return self.on_assigned
        if not event.partitions:
            return None
        return (self.on_lost or self.on_revoked) if event.kind == LOST else self.on_revoked
