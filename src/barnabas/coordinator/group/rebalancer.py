"""Rebalances classic groups: all members are asked to join again, and those that do form the next generation.

A rebalance begins when a member joins, leaves, changes or fails (`prepare_rebalance`), waits for the members, and ends
in a new generation or an empty group (`_complete_join`). Sessions and all other timers are here too. Source: the
classic part of Kafka's GroupMetadataManager.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.coordinator_shard import NOTHING, CoordinatorResult, CoordinatorTimer
from barnabas.coordinator.group.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.rebalance_history import Trigger
from barnabas.coordinator.group.records import GroupMetadata, GroupRecord
from barnabas.errors import CoordinatorNotAvailable, KafkaError, RebalanceInProgress, UnknownMemberId
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

__all__ = ["Nothing", "Rebalancer", "session_key", "sync_key"]

S = ClassicGroupState

PENDING_WAIT_MS: Final = 50
"""The time that a first generation without an initial delay waits for members that have just got their id: a round
trip."""

Nothing = CoordinatorResult[GroupRecord, None]


class Rebalancer:
    """Rebalances all groups of one partition."""

    def __init__(
        self,
        groups: dict[str, ClassicGroup],
        config: GroupConfig,
        timers: CoordinatorTimer,
        now_ms: Callable[[], int],
        keeps: Callable[[str], bool],
        logger: logging.Logger,
    ) -> None:
        """`keeps(group_id)` returns whether the log has a record of the group."""
        self.groups = groups
        self.config = config
        self.timers = timers
        self.now_ms = now_ms
        self.keeps = keeps
        self.log = logger

    def rebalance_or_complete(self, group: ClassicGroup, trigger: Trigger, reason: str) -> Nothing:
        """Starts a rebalance because a member joined or changed, or adds the reason to the current one."""
        if group.can_rebalance():
            return self.prepare_rebalance(group, trigger, reason)
        group.history.note(reason)
        return self.complete_if_all_joined(group)

    def shrink(self, group: ClassicGroup) -> Nothing:
        """Rebalances a loaded group that is larger than group.max.size: the last members to rejoin are refused."""
        reason = f"{len(group.members)} members were loaded, {self.config.max_size} are allowed"
        return self.prepare_rebalance(group, Trigger.OVER_CAPACITY, reason)

    def prepare_rebalance(self, group: ClassicGroup, trigger: Trigger, reason: str) -> Nothing:
        """Ends the generation: all members have to join again. `reason` is for people."""
        if group.is_in(S.COMPLETING_REBALANCE):
            self.reset_assignments(group, RebalanceInProgress.code)
        self._stop_sync_timer(group)
        initial = group.is_in(S.EMPTY)
        group.history.begin(self.now_ms(), group.generation_id, trigger, reason)
        group.transition_to(S.PREPARING_REBALANCE, self.now_ms())
        self.log.info(
            "Group %s rebalances after generation %d: %s (%s)",
            group.group_id,
            group.generation_id,
            trigger.value,
            reason,
        )
        if not initial:
            if group.has_all_members_joined():
                return self._complete_join(group)
            self._schedule_join(group, group.rebalance_timeout_ms(), lambda: self._join_expired(group))
            return NOTHING
        delay_ms = self.config.initial_rebalance_delay_ms
        if delay_ms <= 0:
            return self._settle(group)
        remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        self._schedule_join(group, delay_ms, lambda: self._initial_delay_over(group, delay_ms, remaining_ms))
        return NOTHING

    def _settle(self, group: ClassicGroup) -> Nothing:
        """Waits a moment without an initial delay, too: consumers that start together share their first generation."""
        if self.config.settle_ms <= 0:
            return self._settled(group)
        group.settling = True
        self._schedule_join(group, self.config.settle_ms, lambda: self._settled(group))
        return NOTHING

    def _settled(self, group: ClassicGroup) -> Nothing:
        """Waits for a member that has just got its id: it is about to join, and would start another rebalance."""
        group.settling = False
        if not group.is_in(S.PREPARING_REBALANCE):
            return NOTHING
        if group.has_all_members_joined():
            return self._complete_join(group)
        self._schedule_join(group, PENDING_WAIT_MS, lambda: self._join_expired(group))
        return NOTHING

    def _initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> Nothing:
        if not group.is_in(S.PREPARING_REBALANCE):
            return NOTHING
        if not group.new_member_added or remaining_ms == 0:
            return self._complete_join(group)
        group.new_member_added = False
        next_delay_ms = min(self.config.initial_rebalance_delay_ms, remaining_ms)
        next_remaining_ms = max(remaining_ms - delay_ms, 0)
        self._schedule_join(
            group, next_delay_ms, lambda: self._initial_delay_over(group, next_delay_ms, next_remaining_ms)
        )
        return NOTHING

    def complete_if_all_joined(self, group: ClassicGroup) -> Nothing:
        """Completes the rebalance if all members have joined, but not before the end of the initial delay."""
        delayed = group.settling or self.config.initial_rebalance_delay_ms > 0
        if group.previous_state is S.EMPTY and delayed:
            return NOTHING
        return self.complete_if_ready(group)

    def _join_expired(self, group: ClassicGroup) -> Nothing:
        return self._complete_join(group) if group.is_in(S.PREPARING_REBALANCE) else NOTHING

    def _complete_join(self, group: ClassicGroup) -> Nothing:
        """Makes the next generation of the members that have joined, and of static members that have not."""
        self.timers.cancel(join_key(group))
        for member in group.not_yet_rejoined():
            if member.group_instance_id is None:
                self.forget_member(group, member.member_id)
                note = f"member {member.member_id} did not rejoin within the rebalance timeout"
                group.history.note(note)
                self.log.info("Group %s: %s", group.group_id, note)
        if group.members and not group.elect_joined_leader():
            self.log.error("Group %s: no member rejoined, waiting for their sessions to end", group.group_id)
            self._schedule_join(group, group.rebalance_timeout_ms(), lambda: self._join_expired(group))
            return NOTHING
        now_ms = self.now_ms()
        group.next_generation(now_ms)
        group.history.complete(now_ms, group.generation_id, group.leader_id, list(group.members))
        if group.is_in(S.EMPTY):
            return self._became_empty(group)
        self.log.info(
            "Group %s is at generation %d: %d members, leader %s, protocol %s",
            group.group_id,
            group.generation_id,
            len(group.members),
            group.leader_id,
            group.protocol_name,
        )
        self._answer_joins(group)
        return NOTHING

    def _answer_joins(self, group: ClassicGroup) -> None:
        for member in list(group.members.values()):
            group.complete_join(member, group.join_response(member.member_id))
            self.schedule_session(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        generation_id = group.generation_id
        self.timers.schedule(
            sync_key(group), group.rebalance_timeout_ms(), lambda: self._sync_expired(group, generation_id)
        )

    def _became_empty(self, group: ClassicGroup) -> Nothing:
        self.log.info("Group %s is empty at generation %d", group.group_id, group.generation_id)

        def done(error: KafkaError | None) -> None:
            if error is not None:
                # After a restart the old members would be loaded and expire with their sessions, which is harmless.
                self.log.warning("Group %s: its emptiness was not written: %s", group.group_id, error)

        return CoordinatorResult([GroupMetadata(group.group_id, group.as_record({}))], done=done)

    def reset_assignments(self, group: ClassicGroup, error_code: int) -> None:
        """Fails the waiting SyncGroup requests, because the leader sends no assignment."""
        for member in list(group.members.values()):
            member.assignment = b""
            if group.complete_sync(member, SyncGroupResponse(error_code=error_code)):
                self.schedule_session(group, member.member_id, member.session_timeout_ms)

    def _sync_expired(self, group: ClassicGroup, generation_id: int) -> Nothing:
        if generation_id != group.generation_id or not group.is_in(S.COMPLETING_REBALANCE, S.STABLE):
            return NOTHING
        late = sorted(group.pending_sync)
        if not late:
            return NOTHING
        for member_id in late:
            self.forget_member(group, member_id)
        names = ", ".join(late[:10]) + (f" and {len(late) - 10} more" if len(late) > 10 else "")
        return self.prepare_rebalance(group, Trigger.SYNC_TIMED_OUT, f"{names} did not sync in time")

    def _stop_sync_timer(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self.timers.cancel(sync_key(group))

    def prolong_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        if not member.is_new:
            self.schedule_session(group, member.member_id, member.session_timeout_ms)

    def start_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Starts the session of a member that was loaded from the log."""
        self.schedule_session(group, member.member_id, member.session_timeout_ms)

    def _session_expired(self, group: ClassicGroup, member_id: str) -> Nothing:
        if group.is_in(S.DEAD):
            return NOTHING
        if member_id in group.pending_members:
            self.log.info("Group %s: member %s got an id and did not join with it", group.group_id, member_id)
            group.remove(member_id)
            result = self.complete_if_ready(group)
            self.forget_if_unborn(group)
            return result
        member = group.members.get(member_id)
        if member is None or member.waits():
            return NOTHING
        self.log.info("Group %s: member %s sent no heartbeat in time", group.group_id, member_id)
        group.complete_join(member, JoinGroupResponse(error_code=UnknownMemberId.code))
        group.remove(member_id)
        return self.after_removal(group, Trigger.MEMBER_EXPIRED, f"member {member_id} sent no heartbeat in time")

    def after_removal(self, group: ClassicGroup, trigger: Trigger, reason: str) -> Nothing:
        """Starts a rebalance because a member was removed, or continues the current one without it."""
        if group.is_in(S.STABLE, S.COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, trigger, reason)
        group.history.note(reason)
        return self.complete_if_ready(group)

    def complete_if_ready(self, group: ClassicGroup) -> Nothing:
        """Completes the rebalance if all remaining members have joined, even within the initial delay."""
        if group.is_in(S.PREPARING_REBALANCE) and group.has_all_members_joined():
            return self._complete_join(group)
        return NOTHING

    def forget_member(self, group: ClassicGroup, member_id: str) -> None:
        """Removes a member or pending member and its session."""
        if member_id:
            group.remove(member_id)
            self.timers.cancel(session_key(group, member_id))

    def schedule_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self.timers.schedule(session_key(group, member_id), timeout_ms, lambda: self._session_expired(group, member_id))

    def _schedule_join(
        self, group: ClassicGroup, delay_ms: int, operation: Callable[[], CoordinatorResult[Any, Any]]
    ) -> None:
        self.timers.schedule(join_key(group), delay_ms, operation)

    def drop(self, group: ClassicGroup) -> None:
        """Stops the timers of a deleted group and fails its waiting requests."""
        for member_id in (*group.members, *group.pending_members):
            self.timers.cancel(session_key(group, member_id))
        self.timers.cancel(join_key(group))
        self.timers.cancel(sync_key(group))
        group.transition_to(S.DEAD, self.now_ms())
        group.fail_waiting(CoordinatorNotAvailable)

    def forget_if_unborn(self, group: ClassicGroup) -> None:
        """Removes a group without generation and members: otherwise invalid requests would accumulate groups."""
        if group.is_unborn() and not self.keeps(group.group_id):
            self.groups.pop(group.group_id, None)


def session_key(group: ClassicGroup, member_id: str) -> str:
    return f"session\0{group.group_id}\0{member_id}"


def join_key(group: ClassicGroup) -> str:
    return f"join\0{group.group_id}"


def sync_key(group: ClassicGroup) -> str:
    return f"sync\0{group.group_id}"
