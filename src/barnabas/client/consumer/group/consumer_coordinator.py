"""The consumer's part in its group: joins the group, takes assignments, gives partitions up, commits offsets.

A rebalance progresses only while the application polls. `poll` goes as far as possible without the application, and
returns the next event for the rebalance listener, or None while a response is awaited. A rebalance that an exception of
the listener interrupts continues with the next poll. After a KeyboardInterrupt the rebalance starts again.
"""

import logging
from collections.abc import Callable, Collection, Generator
from typing import Final

from barnabas.client.consumer.assignors import LastAssignment, assignor_for
from barnabas.client.consumer.group.consumer_protocol import decode_assignment
from barnabas.client.consumer.group.heartbeat import MembershipSettings
from barnabas.client.consumer.group.leader_assignment import LeaderAssignment
from barnabas.client.consumer.group.membership import Membership
from barnabas.client.consumer.group.offset_commits import AutoCommit, OffsetCommits, Offsets
from barnabas.client.consumer.rebalance_listener import ASSIGNED, LOST, REVOKED, RebalanceEvent
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.settings import ConsumerSettings
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import BarnabasError, InconsistentGroupProtocol
from barnabas.types import TopicPartition

__all__ = ["ConsumerCoordinator"]

COMMIT_TIMEOUT_S: Final = 30.0
"""The longest time that a rebalance waits for the commit before it, as the other members wait for this one."""

_log = logging.getLogger("barnabas.consumer")

_Steps = Generator[RebalanceEvent | Promise[None], None, None]


class ConsumerCoordinator:
    def __init__(
        self,
        client: NetworkClient,
        settings: ConsumerSettings,
        group_id: str,
        subscription: SubscriptionState,
        *,
        processed_offsets: Callable[[], Offsets],
        on_assignment_changed: Callable[[Collection[TopicPartition]], None],
        on_committed: Callable[[Offsets], None] | None = None,
    ) -> None:
        """Takes `processed_offsets`, which returns the offsets for automatic commits, and `on_assignment_changed`,
        which is called with the removed partitions."""
        self.leader_assignment = LeaderAssignment(
            client,
            group_id,
            [assignor_for(strategy) for strategy in settings.partition_assignment_strategy],
            topics=lambda: subscription.topics,
            owned=subscription.assigned,
            rack=settings.client_rack,
        )
        member = MembershipSettings(
            group_id,
            settings.group_instance_id,
            session_timeout_s=settings.session_timeout_ms / 1000,
            heartbeat_interval_s=settings.heartbeat_interval_ms / 1000,
            max_poll_interval_s=settings.max_poll_interval_ms / 1000,
            request_timeout_s=settings.request_timeout_ms / 1000,
        )
        self.membership = Membership(client, member, self.leader_assignment)
        self.commits = OffsetCommits(client, group_id, settings.group_instance_id, self.membership, on_committed)
        self.auto_commit = AutoCommit(
            self.commits,
            settings.auto_commit_interval_ms / 1000,
            processed_offsets,
            enabled=settings.enable_auto_commit,
        )
        self._client = client
        self._subscription = subscription
        self._on_assignment_changed = on_assignment_changed
        self._steps: _Steps | None = None
        self._item: RebalanceEvent | Promise[None] | None = None
        """The event or the promise that the steps wait for."""

    @property
    def is_reachable(self) -> bool:
        """Whether the group's coordinator is likely to answer."""
        return self._client.is_coordinator_reachable(self.membership.coordinator)

    def take_failure(self) -> BarnabasError | None:
        return self.membership.take_failure()

    # --- the subscription -------------------------------------------------------------------------------------------

    def on_subscription_changed(self, reason: str) -> None:
        if self.membership.is_subscribed:
            self.membership.request_rejoin(reason)
        else:
            self.membership.subscribe()

    def on_metadata(self) -> None:
        """Makes the group's leader join again when the assignment no longer fits the topics' partitions."""
        if self.membership.is_leader:
            reason = self.leader_assignment.reason_to_reassign()
            if reason is not None and self.membership.rejoin_reason is None:
                self.membership.request_rejoin(reason)

    def unsubscribe(self, reason: str) -> Promise[None]:
        """Leaves the group for good. The promise is settled with the coordinator's response."""
        self.auto_commit.stop()
        self._abandon()
        self.leader_assignment.forget()
        return self.membership.unsubscribe(reason)

    # --- rebalances -------------------------------------------------------------------------------------------------

    @property
    def can_poll(self) -> bool:
        """Whether `poll` has something to do."""
        if self._steps is not None:
            return not isinstance(self._item, Promise) or self._item.done
        return self.membership.has_assignment or self.membership.needs_join_prepare

    def poll(self) -> RebalanceEvent | None:
        """Continues a rebalance, and returns the next event for the listener, None if there is none now. The same event
        is returned until `event_delivered` is called."""
        try:
            while not isinstance(self._item, RebalanceEvent) and self.can_poll:
                self._go_on()
        except Exception:
            raise
        except BaseException:
            self._abandon()
            self.membership.restart_join_prepare("the application was interrupted while it rebalanced")
            raise
        return self._item if isinstance(self._item, RebalanceEvent) else None

    def _go_on(self) -> None:
        if self._steps is None:
            assignment = self.membership.take_assignment()
            self._steps = self._on_join_prepare() if assignment is None else self._on_join_complete(assignment)
        steps, self._item = self._steps, None
        for self._item in steps:  # without a call, so that no interrupt comes in between
            return
        self._steps = None

    def event_delivered(self) -> None:
        """Notes that the listener receives the event now."""
        self._item = None

    def _abandon(self) -> None:
        self._steps = self._item = None

    def _on_join_prepare(self) -> _Steps:
        """Gives up the partitions that the group may assign to other members, then joins."""
        membership, subscription = self.membership, self._subscription
        is_cooperative = self.leader_assignment.cooperative
        membership.begin_join_prepare()
        owned = subscription.assigned()
        if not is_cooperative:
            subscription.mark_pending_revocation(owned)
        if owned and not membership.is_lost:
            yield from self._commit()
        kind, removed = REVOKED, owned
        if membership.is_lost:
            kind = LOST
        elif is_cooperative:
            removed = [partition for partition in owned if not subscription.is_subscribed(partition)]
        if removed:
            subscription.mark_pending_revocation(removed)
            yield RebalanceEvent(kind, tuple(removed))
            self._assign([partition for partition in subscription.assigned() if partition not in set(removed)])
        self.leader_assignment.forget()
        membership.join()

    def _commit(self) -> _Steps:
        """Commits the offsets of processed records, before other members read on."""
        if self.auto_commit.is_enabled:
            timeout_s = min(COMMIT_TIMEOUT_S, self.membership.settings.max_poll_interval_s / 2)
            yield self.auto_commit.commit(timeout_s)

    def _on_join_complete(self, assignment: bytes) -> _Steps:
        """Gives up the partitions that the leader assigned to others, and takes those of this member."""
        membership, subscription = self.membership, self._subscription
        if len(assignment) < 2:
            membership.request_rejoin("the leader gave this member no assignment")
            raise InconsistentGroupProtocol(
                f"group {membership.settings.group_id!r}: its leader gave this member no assignment at all"
            )
        assigned = decode_assignment(assignment)
        if not membership.is_leader:
            self.leader_assignment.forget()
        if not all(map(subscription.is_subscribed, assigned)):
            membership.request_rejoin("the assignment does not fit the subscription, which has changed meanwhile")
            return
        removed = set(subscription.assigned()).difference(assigned)
        if removed:
            subscription.mark_pending_revocation(removed)
            yield from self._commit()
            yield RebalanceEvent(LOST if membership.is_lost else REVOKED, tuple(sorted(removed)))
            membership.request_rejoin(f"{len(removed)} partitions are given up, as the assignment says")
        self.leader_assignment.last = LastAssignment(assigned, membership.generation.generation_id)
        added = self._assign(assigned)
        subscription.mark_pending_callback(added, True)
        _log.info(
            "group %r: %d partitions assigned, %d of them new, %d gone",
            membership.settings.group_id,
            len(assigned),
            len(added),
            len(removed),
        )
        self.auto_commit.start()
        yield RebalanceEvent(ASSIGNED, tuple(added))
        subscription.mark_pending_callback(assigned, False)
        self._on_assignment_changed(())

    def _assign(self, partitions: Collection[TopicPartition]) -> tuple[TopicPartition, ...]:
        change = self._subscription.assign_subscribed(partitions)
        self._on_assignment_changed(change.removed)
        return change.added
