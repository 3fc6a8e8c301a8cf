"""The application's rebalance listener: its callbacks, and the events that it receives."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.types import TopicPartition

__all__ = ["ASSIGNED", "LOST", "REVOKED", "Callback", "RebalanceEvent", "RebalanceListener"]

REVOKED: Final = "revoked"
ASSIGNED: Final = "assigned"
LOST: Final = "lost"

Callback = Callable[[Any, tuple[TopicPartition, ...]], object]
"""Called with the consumer and the partitions."""


class RebalanceEvent(NamedTuple):
    """`revoked` before partitions go, `lost` after they went, `assigned` when they came and before they are read."""

    kind: str
    partitions: tuple[TopicPartition, ...]


class RebalanceListener(NamedTuple):
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    def callback_for(self, event: RebalanceEvent) -> Callback | None:
        """Returns the callback for an event, if there is one. Without `on_lost`, `on_revoked` takes lost partitions
        too. An assignment without new partitions is an event, other events without partitions are not."""
        if event.kind == ASSIGNED:
            return self.on_assigned
        if not event.partitions:
            return None
        return (self.on_lost or self.on_revoked) if event.kind == LOST else self.on_revoked
