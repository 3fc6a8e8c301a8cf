"""Handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, and starts their rebalances.

Every flow is a plain call on the event loop's thread. A request that has to wait is kept as a callback in its member
and called once: when the generation is complete, when the assignment is stored, or with an error. Source:
GroupMetadataManager's classic part; KIP-345 (static members), KIP-394 (member id required), KIP-800 (reasons),
KIP-814 (a static leader that comes back skips the assignment).

Where we differ from Kafka: a group that never had a generation leaves no record and is forgotten with its last pending
member; pending members and member metadata are bounded; a SyncGroup or JoinGroup that replaces a waiting one of the
same member replies to the older one instead of leaving it without a response.
"""

from typing import Final, NamedTuple

from barnabas.coordinator.coordinator_shard import NOTHING, CoordinatorResult
from barnabas.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    JoinReply,
    SyncReply,
)
from barnabas.coordinator.group.rebalance_history import Trigger
from barnabas.coordinator.group.rebalancer import Nothing, Rebalancer, session_key, sync_key
from barnabas.coordinator.group.records import GroupMetadata, GroupRecord
from barnabas.coordinator.responses import client_error
from barnabas.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    MessageTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["GroupMetadataManager", "Joiner"]

S = ClassicGroupState

FIRST_VERSION_WITH_KNOWN_MEMBER_ID: Final = 4
FIRST_VERSION_THAT_SKIPS_ASSIGNMENT: Final = 9


class Joiner(NamedTuple):
    """The client of a JoinGroup request, with the member id that it gets if it has none."""

    client_id: str
    client_host: str
    api_version: int
    new_member_id: str


class GroupMetadataManager(Rebalancer):
    """Handles the requests of members to all groups of one partition."""

    # --- join ---------------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, joiner: Joiner, reply: JoinReply) -> Nothing:
        """Handles JoinGroup. `reply` is called once, at once or when the generation is complete."""
        member_id = request.member_id
        protocols = _protocols_of(request)
        refusal = self._refuse_join(request, protocols)
        if refusal is not None:
            reply(JoinGroupResponse(member_id=member_id, error_code=refusal.code))
            return NOTHING
        group = self.groups.get(request.group_id)
        if group is None:
            if member_id:
                reply(JoinGroupResponse(member_id=member_id, error_code=UnknownMemberId.code))
                return NOTHING
            group = ClassicGroup(request.group_id, self.now_ms(), self.config.history_events_max)
            self.groups[request.group_id] = group
        if not self._accepts(group, member_id):
            self.forget_member(group, member_id)
            reply(JoinGroupResponse(error_code=GroupMaxSizeReached.code))
            result = self.complete_if_all_joined(group)
        elif not member_id:
            result = self._join_new(group, request, protocols, joiner, reply)
        else:
            result = self._join_known(group, request, protocols, joiner, reply)
        self.forget_if_unborn(group)
        return result

    def _refuse_join(self, request: JoinGroupRequest, protocols: dict[str, bytes]) -> type[KafkaError] | None:
        config = self.config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return InvalidSessionTimeout
        if sum(map(len, protocols.values())) + sum(map(len, protocols)) > config.member_metadata_max_bytes:
            return MessageTooLarge
        return None

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Returns whether the group has room for the member. During a rebalance waiting members count: the last ones to
        rejoin an over-full group are refused."""
        if group.is_in(S.EMPTY, S.DEAD):
            return True
        member = group.members.get(member_id)
        if group.is_in(S.PREPARING_REBALANCE):
            waits = member is not None and member.awaiting_join is not None
            return waits or group.awaiting_join_count < self.config.max_size
        return member is not None or len(group.members) < self.config.max_size

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        joiner: Joiner,
        reply: JoinReply,
    ) -> Nothing:
        if group.is_in(S.DEAD):
            reply(JoinGroupResponse(error_code=CoordinatorNotAvailable.code))
            return NOTHING
        if not group.supports(request.protocol_type, protocols):
            reply(JoinGroupResponse(error_code=InconsistentGroupProtocol.code))
            return NOTHING
        instance_id = request.group_instance_id
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is not None:
                return self._replace_static(group, request, protocols, joiner, current, reply)
        elif joiner.api_version >= FIRST_VERSION_WITH_KNOWN_MEMBER_ID:
            return self._give_id(group, request, joiner.new_member_id, reply)
        return self._add(group, request, protocols, joiner, joiner.new_member_id, reply)

    def _give_id(self, group: ClassicGroup, request: JoinGroupRequest, member_id: str, reply: JoinReply) -> Nothing:
        """Gives the member an id with which it joins again: a lost response must not leave a member behind
        (KIP-394)."""
        if len(group.pending_members) >= self.config.pending_members_max:
            reply(JoinGroupResponse(error_code=GroupMaxSizeReached.code))
            return NOTHING
        group.pending_members.add(member_id)
        self.schedule_session(group, member_id, request.session_timeout_ms)
        reply(JoinGroupResponse(member_id=member_id, error_code=MemberIdRequired.code))
        return NOTHING

    def _join_known(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        joiner: Joiner,
        reply: JoinReply,
    ) -> Nothing:
        member_id = request.member_id
        try:
            group.check_alive()
            if not group.supports(request.protocol_type, protocols):
                raise InconsistentGroupProtocol
            if member_id in group.pending_members and request.group_instance_id is None:
                return self._add(group, request, protocols, joiner, member_id, reply)
            member = group.check_member(member_id, request.group_instance_id)
            if group.is_in(S.EMPTY):
                raise UnknownMemberId
        except KafkaError as error:
            reply(JoinGroupResponse(member_id=member_id, error_code=error.code))
            return NOTHING
        if group.is_in(S.PREPARING_REBALANCE):
            if not member.same_protocols(protocols):
                group.history.note(f"member {member_id} changed its metadata")
            group.update_member(member, protocols, _rebalance_timeout(request), request.session_timeout_ms, reply)
            return self.complete_if_all_joined(group)
        trigger, what = self._why_rejoin(group, member, protocols)
        if trigger is None:
            # The response to the last JoinGroup was lost, or the client retries: this generation is still valid.
            reply(group.join_response(member_id))
            return NOTHING
        group.update_member(member, protocols, _rebalance_timeout(request), request.session_timeout_ms, reply)
        return self.prepare_rebalance(group, trigger, f"{what}; client reason: {_reason(request.reason)}")

    def _why_rejoin(
        self, group: ClassicGroup, member: ClassicGroupMember, protocols: dict[str, bytes]
    ) -> tuple[Trigger | None, str]:
        name = member.member_id
        if group.is_in(S.STABLE) and group.is_leader(name):
            # The leader knows of changes that the group does not see: new partitions, a topic that matches a pattern.
            return Trigger.LEADER_REJOINED, f"leader {name} rejoined"
        if not member.same_protocols(protocols):
            return Trigger.METADATA_CHANGED, f"member {name} changed its metadata"
        return None, ""

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        joiner: Joiner,
        member_id: str,
        reply: JoinReply,
    ) -> Nothing:
        member = ClassicGroupMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=_rebalance_timeout(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
        )
        member.is_new = True
        if group.is_in(S.PREPARING_REBALANCE) and group.previous_state is S.EMPTY:
            group.new_member_added = True
        group.add(member, reply)
        # A waiting member sends no heartbeats, and its client may disconnect unnoticed: bound the wait instead.
        self.schedule_session(group, member_id, self.config.new_member_join_timeout_ms)
        static = "" if request.group_instance_id is None else f" with instance id {request.group_instance_id}"
        what = f"member {member_id}{static} joined; client reason: {_reason(request.reason)}"
        return self.rebalance_or_complete(group, Trigger.MEMBER_JOINED, what)

    # --- static members -----------------------------------------------------------------------------------------------

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        joiner: Joiner,
        old_id: str,
        reply: JoinReply,
    ) -> Nothing:
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_leader = group.leader_id
        member = group.replace_static(instance_id, old_id, joiner.new_member_id)
        self.timers.cancel(session_key(group, old_id))
        self.schedule_session(group, member.member_id, request.session_timeout_ms)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update_member(member, protocols, _rebalance_timeout(request), request.session_timeout_ms, reply)
        what = f"static member {instance_id} came back as {member.member_id}; client reason: {_reason(request.reason)}"
        if group.is_in(S.PREPARING_REBALANCE):
            group.history.note(what)
            return self.complete_if_all_joined(group)
        if group.is_in(S.STABLE) and group.select_protocol() == group.protocol_name:
            self.log.info("Group %s: %s; nothing changes, no rebalance", group.group_id, what)
            return self._persist_replacement(group, member, old_id, old_leader, before, joiner)
        # Until the assignment is stored, the leader may assign to the old id: only a new generation is safe.
        return self.prepare_rebalance(group, Trigger.STATIC_MEMBER_REPLACED, what)

    def _persist_replacement(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        old_id: str,
        old_leader: str | None,
        before: tuple[dict[str, bytes], int, int],
        joiner: Joiner,
    ) -> Nothing:
        """Writes the new member id before the member gets its response."""

        def done(error: KafkaError | None) -> None:
            if group.members.get(member.member_id) is not member:
                return
            if error is not None:
                response = JoinGroupResponse(
                    error_code=client_error(error), generation_id=group.generation_id, leader=old_leader or ""
                )
                group.complete_join(member, response)
                group.update_member(member, *before, None)
                restored = group.replace_static(str(member.group_instance_id), member.member_id, old_id)
                self.timers.cancel(session_key(group, member.member_id))
                self.schedule_session(group, old_id, restored.session_timeout_ms)
                return
            if joiner.api_version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT:
                response = group.join_response(member.member_id)
                response.skip_assignment = group.is_leader(member.member_id)
            else:
                # The member must not assign: an older client behaves as a follower if another id is the leader.
                response = group.join_response(member.member_id, leader_id=old_leader)
            group.complete_join(member, response)

        assignments = {name: one.assignment for name, one in group.members.items()}
        return CoordinatorResult([GroupMetadata(group.group_id, group.as_record(assignments))], done=done)

    # --- sync ---------------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> Nothing:
        """Handles SyncGroup. `reply` is called once, at once or when the leader's assignment is stored."""
        group = self.groups.get(request.group_id)
        if group is None or group.is_in(S.EMPTY):
            reply(SyncGroupResponse(error_code=UnknownMemberId.code))
            return NOTHING
        try:
            member = self._checked_sync(group, request)
        except KafkaError as error:
            reply(SyncGroupResponse(error_code=error.code))
            return NOTHING
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self.timers.cancel(sync_key(group))
        if group.is_in(S.STABLE):
            reply(_sync_response(group, member))
            return NOTHING
        group.await_sync(member, reply)
        if not group.is_leader(member.member_id):
            return NOTHING
        return self._store_assignment(group, request)

    def _checked_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> ClassicGroupMember:
        group.check_alive()
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
            None,
            group.protocol_name,
        ):
            raise InconsistentGroupProtocol(f"group {group.group_id} uses {group.protocol_type}/{group.protocol_name}")
        if group.is_in(S.PREPARING_REBALANCE):
            raise RebalanceInProgress(f"group {group.group_id} rebalances")
        return member

    def _store_assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> Nothing:
        assignments = {entry.member_id: entry.assignment for entry in request.assignments}
        without = [member_id for member_id in group.members if member_id not in assignments]
        if without:
            self.log.warning(
                "Group %s, generation %d: the leader assigned nothing to %d of %d members",
                group.group_id,
                group.generation_id,
                len(without),
                len(group.members),
            )
        generation_id = group.generation_id

        def done(error: KafkaError | None) -> None:
            # Members may have joined or left while the record was written: then this generation is over.
            if not group.is_in(S.COMPLETING_REBALANCE) or group.generation_id != generation_id:
                return
            if error is not None:
                self.reset_assignments(group, client_error(error))
                self.prepare_rebalance(group, Trigger.STORE_FAILED, f"the assignment could not be stored: {error}")
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.transition_to(S.STABLE, self.now_ms())
            self._answer_syncs(group)

        # The time in the record is that of the state it describes, which begins when the record is committed.
        value = group.as_record(assignments)
        value.current_state_timestamp = self.now_ms()
        return CoordinatorResult([GroupMetadata(group.group_id, value)], done=done)

    def _answer_syncs(self, group: ClassicGroup) -> None:
        for member in list(group.members.values()):
            if group.complete_sync(member, _sync_response(group, member)):
                # Its session may have expired while it waited, without effect: start it anew.
                self.schedule_session(group, member.member_id, member.session_timeout_ms)

    # --- heartbeat ----------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[GroupRecord, HeartbeatResponse]:
        """Handles Heartbeat: prolongs the session and reports a rebalance. Raises KafkaError."""
        group = self.groups.get(request.group_id)
        if group is None:
            raise UnknownMemberId(f"Group {request.group_id} not found.")
        group.check_alive()
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        self.prolong_session(group, member)
        if group.is_in(S.PREPARING_REBALANCE):
            return CoordinatorResult(response=HeartbeatResponse(error_code=RebalanceInProgress.code))
        return CoordinatorResult(response=HeartbeatResponse())

    # --- leave --------------------------------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
        """Handles LeaveGroup with `members` filled in, whatever the version. Administrators name static members by
        their instance id alone."""
        group = self.groups.get(request.group_id)
        if group is None:
            gone = [_left(identity, UnknownMemberId.code) for identity in request.members]
            return CoordinatorResult(response=LeaveGroupResponse(members=gone))
        if group.is_in(S.DEAD):
            return CoordinatorResult(response=LeaveGroupResponse(error_code=CoordinatorNotAvailable.code))
        responses, reasons = [], []
        for identity in request.members:
            try:
                member_id = self._remove_leaving(group, identity)
            except KafkaError as error:
                responses.append(_left(identity, error.code))
            else:
                responses.append(_left(identity, 0))
                reasons.append(f"member {member_id} left; client reason: {_reason(identity.reason)}")
        result = NOTHING
        if reasons:
            result = self._after_leaving(group, "; ".join(reasons[:10]))
            self.forget_if_unborn(group)
        return CoordinatorResult(result.records, LeaveGroupResponse(members=responses), done=result.done)

    def _after_leaving(self, group: ClassicGroup, reason: str) -> Nothing:
        if group.is_in(S.STABLE, S.COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, Trigger.MEMBER_LEFT, reason)
        group.history.note(reason)
        return self.complete_if_ready(group) if not group.members else self.complete_if_all_joined(group)

    def _remove_leaving(self, group: ClassicGroup, identity: MemberIdentity) -> str:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            current = None if instance_id is None else group.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {group.group_id} has no static member {instance_id}")
            member_id = current
        elif member_id in group.pending_members:
            self.forget_member(group, member_id)
            return member_id
        else:
            group.check_member(member_id, instance_id)
        member = group.members[member_id]
        group.complete_join(member, JoinGroupResponse(error_code=UnknownMemberId.code))
        self.forget_member(group, member_id)
        return member_id


def _protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """Returns the protocols in the order of preference, each name once."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    """Returns the rebalance timeout, which is the session timeout in version 0."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _reason(reason: str | None) -> str:
    """Returns the client's reason, truncated as in Kafka."""
    return reason[:255] if reason else "not provided"


def _sync_response(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def _left(identity: MemberIdentity, error_code: int) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error_code
    )
