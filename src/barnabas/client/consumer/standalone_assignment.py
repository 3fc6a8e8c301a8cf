"""The assignment of a consumer that subscribes to topics without being in a group: all of their partitions.

As with a group, the listener hears of partitions before they go and before they are read, while the application polls.
"""

from collections.abc import Callable, Collection

from barnabas.client.consumer.group.rebalance import ASSIGNED, REVOKED, Notice
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.connection.metadata import Metadata
from barnabas.types import TopicPartition

__all__ = ["StandaloneAssignment"]


class StandaloneAssignment:
    """Assigns the partitions that metadata lists. `on_change` is called whenever the assignment has changed.

    Partitions whose topic disappears stay assigned as long as the topic is subscribed to: a stale metadata answer must
    not cost the position, which is stored nowhere else.
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
        """The assignment differs from what is subscribed to and known."""
        self._notice: Notice | None = None
        """What the listener has to hear."""
        self._told: Notice | None = None
        """What the listener has heard, and what is not carried out yet."""

    @property
    def can_step(self) -> bool:
        """Whether `step` has something to do."""
        return self._is_due or self._notice is not None or self._told is not None

    def follow(self) -> None:
        """Compares the assignment with the subscription and the metadata, one of which may have changed."""
        if self._subscription.subscribes:
            self._is_due = bool(self._gone() or self._missing() or self._subscription.pending_callback())

    def step(self) -> Notice | None:
        """Goes on as far as possible; the next notice for the listener, None if there is none. A notice is returned
        again until it is `told`."""
        if self._notice is None and self.can_step:
            told, self._told = self._told, None
            if told is not None:
                self._carry_out(told)
            self._notice = self._next_notice()
            self._is_due = self._notice is not None
        return self._notice

    def told(self) -> None:
        """The listener hears of the notice now."""
        self._told, self._notice = self._notice, None

    def abandon(self) -> None:
        """Nothing is subscribed to any more."""
        self._is_due = False
        self._notice = self._told = None

    def _gone(self) -> list[TopicPartition]:
        topics = self._subscription.topics
        return [where for where in self._subscription.assigned() if where.topic not in topics]

    def _missing(self) -> list[TopicPartition]:
        """Partitions that are known, subscribed to and not assigned."""
        found = []
        for name in sorted(self._subscription.topics):
            topic = self._metadata.topic(name)
            for number in () if topic is None else sorted(topic.partitions):
                where = TopicPartition(name, number)
                if self._subscription.get(where) is None:
                    found.append(where)
        return found

    def _next_notice(self) -> Notice | None:
        subscription = self._subscription
        gone = self._gone()
        if gone:
            subscription.mark_pending_revocation(gone)
            return Notice(REVOKED, tuple(gone))
        missing = self._missing()
        if missing:
            subscription.assign_subscribed([*subscription.assigned(), *missing])
            subscription.mark_pending_callback(missing, True)
            self._on_change(())
        added = subscription.pending_callback()
        return Notice(ASSIGNED, tuple(added)) if added else None

    def _carry_out(self, told: Notice) -> None:
        subscription = self._subscription
        if told.kind == ASSIGNED:
            subscription.mark_pending_callback(told.partitions, False)
            self._on_change(())
        else:
            gone = set(told.partitions)
            change = subscription.assign_subscribed([where for where in subscription.assigned() if where not in gone])
            self._on_change(change.removed)
