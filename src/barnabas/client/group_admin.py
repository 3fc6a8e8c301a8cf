"""Consumer groups from outside: list, describe, committed offsets, resets, deletion; asked from the coordinator."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.client.admin_base import AdminBase
from barnabas.client.core.consumer_protocol import decode_assignment, decode_subscription
from barnabas.client.deadline import Deadline
from barnabas.errors import GroupIdNotFound, KafkaError, error_for
from barnabas.types import TopicPartition

__all__ = ["CommittedOffset", "GroupAdmin", "GroupDescription", "GroupListing", "GroupMemberView"]


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


class CommittedOffset(NamedTuple):
    """A group's position in a partition."""

    offset: int
    leader_epoch: int
    metadata: str


class GroupAdmin(AdminBase):
    """Calls about consumer groups."""

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """The groups of every broker, sorted. Raises the first error that a broker answers."""
        from barnabas.protocol.messages.list_groups import ListGroupsRequest

        view = self._retrying(lambda deadline: self.cluster.refresh((), deadline=deadline))
        found: dict[str, GroupListing] = {}
        for node_id in view.brokers:

            def once(deadline: Deadline, node_id: int = node_id) -> Any:
                connection = self.cluster.connection(node_id, deadline)
                version = connection.version_of(ListGroupsRequest)
                request = ListGroupsRequest(states_filter=states, types_filter=types)
                response = connection.call(request, deadline, version=version)
                if response.error_code:
                    raise error_for(response.error_code)
                return response

            for g in self._retrying(once).groups:
                found[g.group_id] = GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
        return [found[name] for name in sorted(found)]

    def describe_group(self, group_id: str) -> GroupDescription:
        """Raises GroupIdNotFound for what does not exist (Kafka answers so for its newer group types, too)."""
        from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest

        request = DescribeGroupsRequest(groups=[group_id])
        response = self.cluster.call_coordinator(group_id, request, check=lambda r: int(r.groups[0].error_code))
        group = response.groups[0]
        if group.error_code or group.group_state == "Dead":
            code = group.error_code or GroupIdNotFound.code
            raise error_for(code, f"group {group_id!r} does not exist" if code == GroupIdNotFound.code else "")
        members = tuple(_member(m, group.protocol_type) for m in group.members)
        return GroupDescription(
            group_id,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            self.cluster.coordinator_id(group_id),
            tuple(sorted(members, key=lambda m: (m.client_id, m.member_id))),
            _rebalances(getattr(group, REBALANCES_FIELD, None)),
        )

    def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group committed, for these partitions or (None) all. Those without a commit are left out."""
        from barnabas.client.commits import fetch_committed

        found = self.cluster.retrying(
            lambda deadline: fetch_committed(self.cluster, group_id, partitions, deadline),
            before_retry=lambda _: self.cluster.forget_coordinator(group_id),
        )
        return {tp: CommittedOffset(*values) for tp, values in found.items()}

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit from outside: allowed while the group has no members (or none that the coordinator manages)."""
        from barnabas.client.commits import commit

        return self.cluster.retrying(
            lambda deadline: commit(self.cluster, group_id, offsets, deadline),
            before_retry=lambda _: self.cluster.forget_coordinator(group_id),
        )

    def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest

        found: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            request = DeleteGroupsRequest(groups_names=[group_id])
            response = self.cluster.call_coordinator(group_id, request, check=lambda r: int(r.results[0].error_code))
            code = response.results[0].error_code
            found[group_id] = group_error(code, group_id) if code else None
        return found

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget commits of topics that no member subscribes to."""
        from barnabas.client.core.offset_messages import by_topic
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
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        response = self.cluster.call_coordinator(group_id, request, check=lambda r: int(r.error_code))
        if response.error_code:
            raise group_error(response.error_code, group_id)
        return {
            TopicPartition(topic.name, p.partition_index): group_error(p.error_code, group_id) if p.error_code else None
            for topic in response.topics
            for p in topic.partitions
        }


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


def _rebalances(text: str | None) -> tuple[dict[str, Any], ...]:
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
