"""One group of the classic protocol: its members, its generation, and the rules of both.

States and what leads from one to the next:

    Empty                no members, maybe offsets      a member joins: PreparingRebalance
    PreparingRebalance   waits for members to (re)join  all there or timeout: CompletingRebalance; nobody: Empty
    CompletingRebalance  waits for the leader's sync    assignment stored: Stable; anyone comes or goes: back
    Stable               everyone works                 a member joins, leaves, expires, changes: PreparingRebalance
    Dead                 deleted or led elsewhere       never left

Nothing here reads a clock, draws a random id or waits: ids and times come in, parked requests are callbacks that are
called once. Source: group-coordinator's ClassicGroup; KIP-345, KIP-394, KIP-559.
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
    """Values are the names on the wire."""

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
    """A member and the requests of it that are parked here."""

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
        """Name -> metadata, in the member's order of preference."""
        self.assignment = assignment
        self.awaiting_join: JoinReply | None = None
        self.awaiting_sync: SyncReply | None = None
        self.is_new = False
        """Has not been in a generation yet: its session runs even while it waits, because it may be a zombie."""

    def waits(self) -> bool:
        """Whether the session timeout may pass: a request of the member is parked, so it cannot send heartbeats."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def same_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Order counts: it is the member's preference."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member likes best."""
        return next(name for name in self.protocols if name in candidates)

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.group_instance_id!r}, new={self.is_new})"


class ClassicGroup:
    """A group. Methods move soft state only; what has to last is written by the shard as GroupMetadata."""

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
        """When the state was entered; None: an old record did not say."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        """In the order of joining."""
        self.static_members: dict[str, str] = {}
        """group.instance.id -> member id."""
        self.pending_members: set[str] = set()
        """Ids that were given out and did not join yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of this generation whose SyncGroup has not come."""
        self.new_member_added = False
        """Somebody joined during the initial delay: it may be prolonged."""
        self.settling = False
        """The first members have come, others may be about to."""
        self.subscribed_topics: frozenset[str] | None = None
        """What the members read; None: nobody knows."""
        self.history = RebalanceHistory(history_events_max)
        self._supported: Counter[str] = Counter()
        self._awaiting_join_count = 0

    # --- states -------------------------------------------------------------------------------------------------------

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Enter a state; asserts that the table allows it."""
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
        """Nothing would be lost if the group were forgotten, offsets aside."""
        return self.is_in(S.EMPTY) and self.generation_id == 0 and not self.members and not self.pending_members

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, member: ClassicGroupMember, reply: JoinReply | None = None) -> None:
        """Take a member in; the first one leads and sets the protocol type."""
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
        """Let a member or a pending member go, and whatever it had parked; another becomes the leader if it led."""
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
        """A static member came back under a new member id: it keeps everything else; the old id is fenced (KIP-345)."""
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
        """A known member joins again, maybe with other metadata."""
        self._withdraw(member)
        member.protocols = protocols
        self._supported.update(protocols.keys())
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.set_awaiting_join(member, reply)

    def set_awaiting_join(self, member: ClassicGroupMember, reply: JoinReply | None) -> None:
        """Park a JoinGroup. An older one of the same member is answered: its connection is most likely gone."""
        before = member.awaiting_join
        self._awaiting_join_count += (reply is not None) - (before is not None)
        member.awaiting_join = reply
        if before is not None and before is not reply:
            before(JoinGroupResponse(member_id=member.member_id, error_code=UnknownMemberId.code))

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer the parked JoinGroup; whether there was one."""
        reply = member.awaiting_join
        if reply is None:
            return False
        member.awaiting_join = None
        self._awaiting_join_count -= 1
        reply(response)
        return True

    def complete_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer the parked SyncGroup; whether there was one."""
        reply = member.awaiting_sync
        if reply is None:
            return False
        member.awaiting_sync = None
        reply(response)
        return True

    def park_sync(self, member: ClassicGroupMember, reply: SyncReply) -> None:
        """Park a SyncGroup; an older one of the same member is told to try again."""
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
        """The most patient member decides."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def elect_joined_leader(self) -> bool:
        """Whether a member that has joined leads, after an election if need be."""
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
        """Whether a member with these protocols fits: the same type, and one protocol that everyone has."""
        names = list(protocols)
        if self.is_in(S.EMPTY):
            return bool(protocol_type) and bool(names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == count for name in names)

    def _withdraw(self, member: ClassicGroupMember) -> None:
        """The member's protocols have one supporter less; names that nobody has are forgotten."""
        for name in member.protocols:
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that every member has; an early vote breaks a tie."""
        count = len(self.members)
        candidates = {name for name, members in self._supported.items() if members == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: int) -> None:
        """Everyone who will be in it has joined: number it, choose the protocol; without members become Empty."""
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
        """Topics of all members, if they speak the consumer protocol and it can be read."""
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
                # Behind the version stands version 0, which begins every later one.
                topics.update(decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
            except MalformedMessage:
                return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Where nobody knows, a group of consumers is taken to be subscribed."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol()
        return topic in self.subscribed_topics

    # --- checks, each raising the KafkaError that the client gets -----------------------------------------------------

    def check_alive(self) -> None:
        if self.is_in(S.DEAD):
            raise CoordinatorNotAvailable(f"group {self.group_id} is being moved or deleted")

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """The member. Raises UnknownMemberId; FencedInstanceId if another member id has taken the instance over."""
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
        """Whether this sender may commit: a member of this generation, or anyone while the group is empty."""
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
        """Offsets of a group with members may go only where it is known what the members read."""
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
        """What the leader assigns from."""
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
        """This generation as `member_id` sees it: with everyone's metadata for the leader."""
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader_id if leader_id is not None else self.leader_id or "",
            member_id=member_id,
            members=self.join_members() if self.is_leader(member_id) and leader_id is None else (),
        )

    def as_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """What the log remembers: members with the metadata of the chosen protocol and their assignments."""
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
        """The group as it was when the record was written; its members get a session timeout to come back."""
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

    def fail_parked(self, error: type[KafkaError]) -> None:
        """Answer every parked request with the error."""
        for member in list(self.members.values()):
            self.complete_join(member, JoinGroupResponse(member_id=member.member_id, error_code=error.code))
            self.complete_sync(member, SyncGroupResponse(error_code=error.code))
