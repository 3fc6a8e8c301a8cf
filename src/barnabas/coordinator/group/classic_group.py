"""A group of the classic protocol: its members, its generation, and their rules.

The states and their transitions:

    Empty                no members, maybe offsets      a member joins: PreparingRebalance
    PreparingRebalance   waits for members to (re)join  all there or timeout: CompletingRebalance; no member: Empty
    CompletingRebalance  waits for the leader's sync    assignment stored: Stable; a member joins or leaves: back
    Stable               members consume                a member joins, leaves, expires, changes: PreparingRebalance
    Dead                 deleted or unloaded            never left

Nothing here reads a clock, draws a random id or waits: ids and times are parameters, waiting requests are callbacks
that are called once. Source: group-coordinator's ClassicGroup; KIP-345, KIP-394, KIP-559.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from barnabas.coordinator.group.rebalance_history import RebalanceHistory
from barnabas.coordinator.group.records import GroupMember, GroupMetadataValue
from barnabas.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse

__all__ = ["VALID_PREVIOUS", "ClassicGroup", "ClassicGroupMember", "ClassicGroupState", "JoinReply", "SyncReply"]

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]


class ClassicGroupState(Enum):
    """The states of a group. The values are the names in the protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = ClassicGroupState

VALID_PREVIOUS: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    S.EMPTY: frozenset({S.PREPARING_REBALANCE}),
    S.PREPARING_REBALANCE: frozenset({S.EMPTY, S.STABLE, S.COMPLETING_REBALANCE}),
    S.COMPLETING_REBALANCE: frozenset({S.PREPARING_REBALANCE}),
    S.STABLE: frozenset({S.COMPLETING_REBALANCE}),
    S.DEAD: frozenset(S),
}


class ClassicGroupMember:
    """A member with its waiting requests."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        """The metadata by protocol name, in the member's order of preference."""
        self.assignment = assignment
        self.awaiting_join: JoinReply | None = None
        self.awaiting_sync: SyncReply | None = None
        self.is_new = False
        """Whether the member has not been in a generation. Its session runs even while it waits, because it may be a
        zombie."""

    def waits(self) -> bool:
        """Whether a request of the member waits: the session timeout may pass, because the member cannot send
        heartbeats."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def same_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Returns whether the protocols are the same in the same order of preference."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        return next(name for name in self.protocols if name in candidates)

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.group_instance_id!r}, new={self.is_new})"


class ClassicGroup:
    """A group. Its methods change soft state only; the shard writes durable state as GroupMetadata."""

    __slots__ = (
        "_awaiting_join_count",
        "_supported",
        "generation_id",
        "group_id",
        "history",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "settling",
        "state",
        "state_since_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int, history_events_max: int = 32) -> None:
        self.group_id = group_id
        self.state = S.EMPTY
        self.previous_state = S.DEAD
        self.state_since_ms: int | None = now_ms
        """The time at which the state was entered; None if an old record does not say."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        """The members by id, in the order of joining."""
        self.static_members: dict[str, str] = {}
        """The member id by group.instance.id."""
        self.pending_members: set[str] = set()
        """The ids that were given out and whose members have not joined (KIP-394)."""
        self.pending_sync: set[str] = set()
        """The members of this generation that have not sent SyncGroup."""
        self.new_member_added = False
        """Whether a member joined during the initial delay, which may then be prolonged."""
        self.settling = False
        """Whether the initial delay is running."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members are subscribed to; None if they are unknown."""
        self.history = RebalanceHistory(history_events_max)
        self._supported: Counter[str] = Counter()
        self._awaiting_join_count = 0

    # --- states -------------------------------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Enters a state. Asserts that the transition is allowed."""
        assert self.state in VALID_PREVIOUS[state], f"group {self.group_id}: {self.state} cannot become {state}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def is_in(self, *states: ClassicGroupState) -> bool:
        return self.state in states

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[S.PREPARING_REBALANCE]

    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_unborn(self) -> bool:
        """Whether the group has neither generation nor members, so that nothing but offsets would be lost with it."""
        return self.is_in(S.EMPTY) and self.generation_id == 0 and not self.members and not self.pending_members

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember, reply: JoinReply | None = None) -> None:
        """Adds a member. The first one becomes the leader and sets the protocol type."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            assert instance_id not in self.static_members, f"{instance_id} is in group {self.group_id} already"
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type, f"group {self.group_id} has another protocol type"
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocols.keys())
        self.pending_members.discard(member.member_id)
        self.set_awaiting_join(member, reply)

    def remove(self, member_id: str) -> None:
        """Removes a member or a pending member with its waiting requests. Elects another leader if it was the
        leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._withdraw(member)
            self.set_awaiting_join(member, None)
            self.complete_sync(member, SyncGroupResponse(error_code=UnknownMemberId.code))
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def replace_static(self, instance_id: str, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """Gives a static member that returns its new member id, and fences the old id (KIP-345)."""
        old = self.members[old_member_id]
        self.complete_join(old, JoinGroupResponse(member_id=old_member_id, error_code=FencedInstanceId.code))
        self.complete_sync(old, SyncGroupResponse(error_code=FencedInstanceId.code))
        new = ClassicGroupMember(
            member_id=new_member_id,
            group_instance_id=instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): (new if member is old else member)
            for member_id, member in self.members.items()
        }
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        return new

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: dict[str, bytes],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: JoinReply | None,
    ) -> None:
        """Updates a member that joins again, maybe with other metadata."""
        self._withdraw(member)
        member.protocols = protocols
        self._supported.update(protocols.keys())
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.set_awaiting_join(member, reply)

    def set_awaiting_join(self, member: ClassicGroupMember, reply: JoinReply | None) -> None:
        """Lets a JoinGroup wait. Replies to an older waiting one of the same member: its connection is most likely
        closed."""
        before = member.awaiting_join
        self._awaiting_join_count += (reply is not None) - (before is not None)
        member.awaiting_join = reply
        if before is not None and before is not reply:
            before(JoinGroupResponse(member_id=member.member_id, error_code=UnknownMemberId.code))

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Replies to the waiting JoinGroup. Returns whether there was one."""
        reply = member.awaiting_join
        if reply is None:
            return False
        member.awaiting_join = None
        self._awaiting_join_count -= 1
        reply(response)
        return True

    def complete_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Replies to the waiting SyncGroup. Returns whether there was one."""
        reply = member.awaiting_sync
        if reply is None:
            return False
        member.awaiting_sync = None
        reply(response)
        return True

    def await_sync(self, member: ClassicGroupMember, reply: SyncReply) -> None:
        """Lets a SyncGroup wait. An older one of the same member gets an error that clients retry."""
        self.complete_sync(member, SyncGroupResponse(error_code=RebalanceInProgress.code))
        member.awaiting_sync = reply

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join_count

    def not_yet_rejoined(self) -> list[ClassicGroupMember]:
        return [member for member in self.members.values() if member.awaiting_join is None]

    def has_all_members_joined(self) -> bool:
        return len(self.members) == self._awaiting_join_count and not self.pending_members

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def elect_joined_leader(self) -> bool:
        """Elects a leader among the members that have joined, unless the leader has. Returns whether there is one."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is None:
            return False
        if leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.history.note(f"leader {leader.member_id} did not rejoin, {member.member_id} leads now")
                self.leader_id = member.member_id
                return True
        return False

    # --- protocols ----------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Returns whether a member with these protocols fits: the same type, and one protocol that all members have."""
        names = list(protocols)
        if self.is_in(S.EMPTY):
            return bool(protocol_type) and bool(names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == count for name in names)

    def _withdraw(self, member: ClassicGroupMember) -> None:
        """Removes the member's protocols from the counts."""
        for name in member.protocols:
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes among those that all members have. An early vote breaks a tie."""
        count = len(self.members)
        candidates = {name for name, members in self._supported.items() if members == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: int) -> None:
        """Starts the next generation and chooses its protocol. A group without members becomes Empty."""
        self.generation_id += 1
        if self.generation_id > 2**31 - 1:
            self.generation_id = 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(S.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(S.EMPTY, now_ms)
        self.pending_sync.clear()
        self.new_member_added = False
        self.settling = False

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics of all members, if they use the consumer protocol and it can be decoded."""
        if not self.uses_consumer_protocol():
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            metadata = member.protocols.get(self.protocol_name, b"")
            try:
                # After the version comes the content of version 0, with which every later version begins.
                topics.update(decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
            except MalformedMessage:
                return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether the group is subscribed to the topic; True for a group of consumers if the topics are
        unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol()
        return topic in self.subscribed_topics

    # --- checks, each raising the KafkaError that the client gets -----------------------------------------------------

    def check_alive(self) -> None:
        if self.is_in(S.DEAD):
            raise CoordinatorNotAvailable(f"group {self.group_id} is being moved or deleted")

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """Returns the member. Raises UnknownMemberId; FencedInstanceId if another member id has taken over the
        instance."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.group_id} has no static member {instance_id}")
            if current != member_id:
                raise FencedInstanceId(f"{instance_id} of group {self.group_id} is {current} now, not {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id}")
        return member

    def check_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise IllegalGeneration(f"group {self.group_id} is at generation {self.generation_id}, not {generation_id}")

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, *, transactional: bool = False
    ) -> None:
        """Checks that the sender may commit: a member of this generation, or any client while the group is empty."""
        self.check_alive()
        if generation_id < 0 and self.is_in(S.EMPTY):
            return
        if generation_id >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(generation_id)
        elif not transactional and not self.is_in(S.EMPTY):
            raise UnknownMemberId(f"group {self.group_id} has members, so only they commit")
        if not transactional and self.is_in(S.COMPLETING_REBALANCE):
            raise RebalanceInProgress(f"group {self.group_id} waits for its assignment")

    def check_offset_delete(self) -> None:
        """Checks that offsets may be deleted: of a group with members only if its subscribed topics are known."""
        if self.is_in(S.DEAD):
            raise GroupIdNotFound(f"Group {self.group_id} is in dead state.")
        if not self.is_in(S.EMPTY) and not self.uses_consumer_protocol():
            raise NonEmptyGroup(f"group {self.group_id} has members")

    def check_delete(self) -> None:
        if self.is_in(S.DEAD):
            raise GroupIdNotFound(f"Group {self.group_id} is in dead state.")
        if not self.is_in(S.EMPTY):
            raise NonEmptyGroup(f"group {self.group_id} has members")

    # --- pictures -----------------------------------------------------------------------------------------------------

    def join_members(self) -> list[JoinGroupResponseMember]:
        """Returns the members with the metadata from which the leader assigns partitions."""
        name = self.protocol_name
        assert name is not None, f"group {self.group_id} in {self.state} has no protocol"
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.protocols.get(name, b""),
            )
            for member in self.members.values()
        ]

    def join_response(self, member_id: str, *, leader_id: str | None = None) -> JoinGroupResponse:
        """Returns the JoinGroup response for a member. The leader gets the metadata of all members."""
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader_id if leader_id is not None else self.leader_id or "",
            member_id=member_id,
            members=self.join_members() if self.is_leader(member_id) and leader_id is None else (),
        )

    def as_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """Returns the record for the log: members with the metadata of the chosen protocol and their assignments."""
        name = self.protocol_name
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=name,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[
                GroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols.get(name or "", b""),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    @classmethod
    def from_record(
        cls, group_id: str, value: GroupMetadataValue, now_ms: int, history_events_max: int = 32
    ) -> "ClassicGroup":
        """Makes the group from its record. Its members get one session timeout to return."""
        group = cls(group_id, now_ms, history_events_max)
        group.state = S.STABLE if value.members else S.EMPTY
        group.state_since_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        group.generation_id = value.generation
        group.protocol_name = value.protocol
        for stored in value.members:
            timeout = stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
            group.add(
                ClassicGroupMember(
                    member_id=stored.member_id,
                    group_instance_id=stored.group_instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=timeout,
                    session_timeout_ms=stored.session_timeout,
                    protocol_type=value.protocol_type,
                    protocols={value.protocol or "": stored.subscription},
                    assignment=stored.assignment,
                )
            )
        group.protocol_type = value.protocol_type or None
        group.leader_id = value.leader if value.leader in group.members else next(iter(group.members), None)
        group.subscribed_topics = group.compute_subscribed_topics()
        return group

    def fail_waiting(self, error: type[KafkaError]) -> None:
        for member in list(self.members.values()):
            self.complete_join(member, JoinGroupResponse(member_id=member.member_id, error_code=error.code))
            self.complete_sync(member, SyncGroupResponse(error_code=error.code))
