"""The assignment of a consumer that subscribes to topics without being in a group: all of their partitions.

As with a group, the listener is called before partitions are given up and before new ones are read, while the
application polls.
"""

from collections.abc import Callable, Collection

from barnabas.client.consumer.rebalance_listener import ASSIGNED, REVOKED, RebalanceEvent
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.connection.metadata import Metadata
from barnabas.types import TopicPartition

__all__ = ["StandaloneAssignment"]


class StandaloneAssignment:
    """Assigns the partitions that metadata lists. `on_change` is called with the removed ones after each change.

    Partitions whose topic disappears stay assigned as long as the topic is subscribed to: a stale response must not
    lose the position, which is stored nowhere else.
    """

    def __init__(
        self,
        metadata: Metadata,
        subscription: SubscriptionState,
        on_change: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self._metadata = metadata
        self._subscription = subscription
        self._on_change = on_change
        self._is_due = False
        """Whether the assignment differs from the subscription and the metadata."""
        self._event: RebalanceEvent | None = None
        """The listener's next event."""
        self._delivered: RebalanceEvent | None = None
        """The event that the listener has received and that is not carried out yet."""

    @property
    def can_poll(self) -> bool:
        """Whether `poll` has something to do."""
        return self._is_due or self._event is not None or self._delivered is not None

    def update(self) -> None:
        """Compares the assignment with the subscription and the metadata, one of which may have changed."""
        if self._subscription.subscribes:
            self._is_due = bool(self._gone() or self._missing() or self._subscription.pending_callback())

    def poll(self) -> RebalanceEvent | None:
        """Goes on as far as possible, and returns the next event for the listener, None if there is none. The same
        event is returned until `event_delivered` is called."""
        if self._event is None and self.can_poll:
            delivered, self._delivered = self._delivered, None
            if delivered is not None:
                self._carry_out(delivered)
            self._event = self._next_event()
            self._is_due = self._event is not None
        return self._event

    def event_delivered(self) -> None:
        """Notes that the listener receives the event now."""
        self._delivered, self._event = self._event, None

    def abandon(self) -> None:
        """Drops the events of a consumer that has unsubscribed."""
        self._is_due = False
        self._event = self._delivered = None

    def _gone(self) -> list[TopicPartition]:
        topics = self._subscription.topics
        return [partition for partition in self._subscription.assigned() if partition.topic not in topics]

    def _missing(self) -> list[TopicPartition]:
        """Returns the partitions that are known, subscribed to and not assigned."""
        found = []
        for name in sorted(self._subscription.topics):
            topic = self._metadata.topic(name)
            for number in () if topic is None else sorted(topic.partitions):
                partition = TopicPartition(name, number)
                if self._subscription.get(partition) is None:
                    found.append(partition)
        return found

    def _next_event(self) -> RebalanceEvent | None:
        subscription = self._subscription
        gone = self._gone()
        if gone:
            subscription.mark_pending_revocation(gone)
            return RebalanceEvent(REVOKED, tuple(gone))
        missing = self._missing()
        if missing:
            subscription.assign_subscribed([*subscription.assigned(), *missing])
            subscription.mark_pending_callback(missing, True)
            self._on_change(())
        added = subscription.pending_callback()
        return RebalanceEvent(ASSIGNED, tuple(added)) if added else None

    def _carry_out(self, event: RebalanceEvent) -> None:
        subscription = self._subscription
        if event.kind == ASSIGNED:
            subscription.mark_pending_callback(event.partitions, False)
            self._on_change(())
        else:
            gone = set(event.partitions)
            change = subscription.assign_subscribed(
                [partition for partition in subscription.assigned() if partition not in gone]
            )
            self._on_change(change.removed)
