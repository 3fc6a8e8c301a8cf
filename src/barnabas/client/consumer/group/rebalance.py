"""The application's half of a rebalance: what it gives up, what it gets, what its listener hears, in which order.

`step` goes as far as it can without the application. A `Notice` that it returns is for the listener; while there is
none but `under_way`, an answer is awaited. A rebalance that a listener's exception interrupts goes on at the next step;
one that a KeyboardInterrupt cuts short begins anew.
"""

import logging
from collections.abc import Callable, Collection, Generator
from typing import NamedTuple

from barnabas.client.consumer.assignors import LastAssignment
from barnabas.client.consumer.group.consumer_protocol import decode_assignment
from barnabas.client.consumer.group.generation import GroupShare
from barnabas.client.consumer.group.membership import Membership
from barnabas.client.consumer.group.offset_commits import AutoCommit
from barnabas.client.consumer.group.partition_assignment import Leading
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.connection.promise import Promise
from barnabas.errors import InconsistentGroupProtocol
from barnabas.types import TopicPartition

__all__ = ["ASSIGNED", "LOST", "REVOKED", "Notice", "Rebalancing"]

REVOKED = "revoked"
ASSIGNED = "assigned"
LOST = "lost"

COMMIT_TIMEOUT_S = 30.0
"""How long a rebalance waits for the commit of what was read before it, at most: the group waits for us."""

_log = logging.getLogger("barnabas.consumer")


class Notice(NamedTuple):
    """What the listener is to be told: `revoked` before partitions go, `lost` after, `assigned` when they came."""

    kind: str
    partitions: tuple[TopicPartition, ...]


_Steps = Generator[Notice | Promise[None], None, None]


class Rebalancing:
    """See the module. `on_change` is called whenever the assignment has changed."""

    def __init__(
        self,
        membership: Membership,
        subscription: SubscriptionState,
        leading: Leading,
        auto_commit: AutoCommit | None,
        on_change: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self._membership = membership
        self._subscription = subscription
        self._leading = leading
        self.auto_commit = auto_commit
        self._on_change = on_change
        self._steps: _Steps | None = None
        self._item: Notice | Promise[None] | None = None
        """What the steps gave last."""

    @property
    def can_step(self) -> bool:
        """Whether `step` has something to do."""
        if self._steps is not None:
            return not isinstance(self._item, Promise) or self._item.done
        return self._membership.has_assignment or self._membership.wants_preparation

    def step(self) -> Notice | None:
        """Go on; the next notice, None if there is none for now. A notice is given again until it is `told`."""
        try:
            while not isinstance(self._item, Notice) and self.can_step:
                self._go_on()
        except Exception:
            raise
        except BaseException:
            self.abandon()
            self._membership.prepare_again("the application was interrupted while it rebalanced")
            raise
        return self._item if isinstance(self._item, Notice) else None

    def _go_on(self) -> None:
        if self._steps is None:
            share = self._membership.take_assignment()
            self._steps = self._prepare() if share is None else self._complete(share)
        steps, self._item = self._steps, None
        for self._item in steps:  # no call, so that nothing comes between
            return
        self._steps = None

    def told(self) -> None:
        """The listener hears of the notice now."""
        self._item = None

    def abandon(self) -> None:
        """There is no group any more to rebalance with."""
        self._steps = self._item = None

    # --- giving up --------------------------------------------------------------------------------------------------

    def _prepare(self) -> _Steps:
        membership, subscription = self._membership, self._subscription
        membership.begin_preparation()
        owned = subscription.assigned()
        if not self._leading.cooperative:
            subscription.mark_pending_revocation(owned)
        if owned and not membership.is_lost:
            yield from self._commit()
        kind, gone = REVOKED, owned
        if membership.is_lost:
            kind = LOST
        elif self._leading.cooperative:
            gone = [where for where in owned if not subscription.is_subscribed(where)]
        if gone:
            subscription.mark_pending_revocation(gone)
            yield Notice(kind, tuple(gone))
            self._assign([where for where in subscription.assigned() if where not in set(gone)])
        self._leading.follow()
        membership.join()

    def _commit(self) -> _Steps:
        """What was read so far, before others may read on."""
        if self.auto_commit is not None:
            timeout_s = min(COMMIT_TIMEOUT_S, self._membership.settings.max_poll_interval_s / 2)
            yield self.auto_commit.commit(timeout_s)

    # --- getting ----------------------------------------------------------------------------------------------------

    def _complete(self, share: GroupShare) -> _Steps:
        membership, subscription = self._membership, self._subscription
        if len(share.assignment) < 2:
            membership.request_rejoin("the leader gave this member no assignment")
            raise InconsistentGroupProtocol(
                f"group {membership.settings.group_id!r}: its leader gave this member no assignment at all"
            )
        assigned = decode_assignment(share.assignment)
        if not membership.is_leader:
            self._leading.follow()
        strange = [where for where in assigned if not subscription.is_subscribed(where)]
        if strange:
            membership.request_rejoin("the assignment does not fit the subscription, which has changed meanwhile")
            return
        owned = set(subscription.assigned())
        gone = owned - set(assigned)
        if gone:
            subscription.mark_pending_revocation(gone)
            yield from self._commit()
            yield Notice(LOST if membership.is_lost else REVOKED, tuple(sorted(gone)))
            membership.request_rejoin(f"{len(gone)} partitions are given up, as the assignment says")
        self._leading.last = LastAssignment(assigned, membership.generation.generation_id)
        added = self._assign(assigned)
        subscription.mark_pending_callback(added, True)
        _log.info(
            "group %r: %d partitions assigned, %d of them new, %d gone",
            membership.settings.group_id,
            len(assigned),
            len(added),
            len(gone),
        )
        if self.auto_commit is not None:
            self.auto_commit.start()
        yield Notice(ASSIGNED, tuple(added))
        subscription.mark_pending_callback(assigned, False)
        self._on_change(())

    def _assign(self, partitions: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
        change = self._subscription.assign_subscribed(partitions)
        self._on_change(change.removed)
        return change.added
