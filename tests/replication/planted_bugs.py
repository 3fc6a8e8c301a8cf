"""Bugs of replicas and leaders, planted on purpose, that each simulation with their code has to find."""

from collections.abc import Callable

import pytest

from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.replica import NO_BROKER_EPOCH, BrokerState, IsrChange
from barnabas.types import FIRST_OFFSET, Offset

Plant = Callable[[pytest.MonkeyPatch], None]


def high_watermark_before_the_isr_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "replicated_offset", lambda self, own_end_offset, log_end_offset, now: own_end_offset)


def wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """The high watermark does not wait for a replica that is about to join, which hides the bugs of joining."""

    def of_members(self: LeaderState, own_end_offset: Offset, log_end_offset: Offset, now: float) -> Offset:
        ends = [each.log_end_offset for each in self.followers.values() if each.broker_id in self.maximal_isr]
        return min([own_end_offset, *ends])

    patch.setattr(LeaderState, "replicated_offset", of_members)


def high_watermark_by_the_isr_without_the_proposed_members(patch: pytest.MonkeyPatch) -> None:
    propose = LeaderState.propose

    def forget_them(self: LeaderState, change: IsrChange) -> None:
        propose(self, change)
        self.maximal_isr = frozenset(self.in_sync_replicas)

    patch.setattr(LeaderState, "propose", forget_them)
    wait_for_nobody(patch)


def a_replica_joins_too_early(patch: pytest.MonkeyPatch) -> None:
    next_isr = LeaderState.next_isr

    def welcome(self: LeaderState, _: Offset, log_end_offset: Offset, now: float) -> tuple[BrokerState, ...] | None:
        return next_isr(self, FIRST_OFFSET, log_end_offset, now)

    patch.setattr(LeaderState, "next_isr", welcome)


def broker_epochs_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "check_broker_epoch", lambda self, replica, broker_epoch: None)
    patch.setattr(LeaderState, "_may_join", lambda self, replica: replica.has_fetched)
    patch.setattr(LeaderState, "_epoch_of", lambda self, broker_id: NO_BROKER_EPOCH)


def nothing_is_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "diverging_epoch", lambda self, last_fetched_epoch, fetch_offset: None)


def a_new_follower_truncates_to_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """The protocol before KIP-101."""
    become = Partition.become

    def truncate(self: Partition, **metadata: object) -> None:
        become(self, **metadata)
        if not self.is_leader:
            self.log.truncate_to(self.log.high_watermark)

    patch.setattr(Partition, "become", truncate)
