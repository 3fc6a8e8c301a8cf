"""Consumer groups from outside: requests and what their coordinators answer."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.consumer.group.consumer_protocol import decode_assignment, decode_subscription
from barnabas.client.offset_messages import by_topic
from barnabas.errors import GroupIdNotFound, KafkaError, error_for
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest
    from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupMemberView",
    "MemberToRemove",
    "delete_offsets_request",
    "description_code",
    "group_description",
    "group_error",
    "group_listings",
    "leave_request",
    "left_members",
    "rebalances_of",
]

REBALANCES_FIELD: Final = "rebalances"
"""The attribute of DescribedGroup that holds the tagged field."""


class GroupListing(NamedTuple):
    """A group as ListGroups names it; state and type are empty where the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMemberView(NamedTuple):
    """A member as the coordinator knows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    subscription: tuple[str, ...]


class GroupDescription(NamedTuple):
    """A classic group; `protocol` is the chosen assignor.

    `rebalances` are the last ones, oldest first, as our brokers tell them in a tagged field of their own: started_ms,
    completed_ms, from_generation_id, generation_id, trigger, reason, notes, members, ... Other brokers send none.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMemberView, ...]
    rebalances: tuple[dict[str, Any], ...] = ()


class MemberToRemove(NamedTuple):
    """A member that is to leave: by its id, or a static one by its group.instance.id."""

    member_id: str = ""
    group_instance_id: str | None = None


def group_listings(response: Any) -> list[GroupListing]:
    return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]


def description_code(group: Any) -> int:
    """Of a description: that of GroupIdNotFound for what does not exist, as newer brokers say themselves. Kafka answers
    so for its newer group types, too."""
    code: int = group.error_code
    return code or (GroupIdNotFound.code if group.group_state == "Dead" else 0)


def group_description(group: Any, coordinator: int) -> GroupDescription:
    members = tuple(_member(m, group.protocol_type) for m in group.members)
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        tuple(sorted(members, key=lambda m: (m.client_id, m.member_id))),
        rebalances_of(getattr(group, REBALANCES_FIELD, None)),
    )


def group_error(code: int, group_id: str) -> KafkaError:
    """The error of a code with the group in its words."""
    texts = {
        69: f"group {group_id!r} does not exist",
        68: f"group {group_id!r} has members; stop its consumers first",
        86: f"group {group_id!r} subscribes to the topic; stop its consumers first",
        25: f"group {group_id!r} has members, so it alone commits; stop its consumers first",
        22: f"group {group_id!r} has members, so it alone commits; stop its consumers first",
    }
    return error_for(code, texts.get(code, ""))


def rebalances_of(text: str | None) -> tuple[dict[str, Any], ...]:
    if not text:
        return ()
    import json

    try:
        return tuple(json.loads(text))
    except (ValueError, TypeError):
        return ()  # another meaning of the tag, by another broker


def _member(member: Any, protocol_type: str) -> GroupMemberView:
    assignment: tuple[TopicPartition, ...] = ()
    subscription: tuple[str, ...] = ()
    if protocol_type == "consumer":
        assignment = decode_assignment(member.member_assignment)
        subscription = decode_subscription(member.member_metadata).topics
    return GroupMemberView(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, assignment, subscription
    )


def delete_offsets_request(group_id: str, partitions: Collection[TopicPartition]) -> "OffsetDeleteRequest":
    from barnabas.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in indexes]
        )
        for topic, indexes in by_topic(partitions).items()
    ]
    return OffsetDeleteRequest(group_id=group_id, topics=topics)


def leave_request(group_id: str, members: Sequence[MemberToRemove], reason: str) -> "LeaveGroupRequest":
    """For versions from 3 on, which take several members."""
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

    identities = []
    for member in members:
        identity = MemberIdentity(member_id=member.member_id)
        identity.group_instance_id = member.group_instance_id
        identity.reason = reason
        identities.append(identity)
    return LeaveGroupRequest(group_id=group_id, members=identities)


def left_members(response: Any, asked: Iterable[MemberToRemove]) -> Iterable[tuple[MemberToRemove, int]]:
    """(member, error code): the whole request's where it was refused as such."""
    codes = {(m.group_instance_id or m.member_id): m.error_code for m in response.members}
    for member in asked:
        yield member, response.error_code or codes.get(member.group_instance_id or member.member_id, 0)
