"""Consumer groups from outside: list, describe, committed offsets, resets, deletion; asked from the coordinator."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.admin_base import AdminBase
from barnabas.client.core.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupMemberView,
    delete_offsets_request,
    description_code,
    group_description,
    group_error,
    group_listings,
)
from barnabas.client.deadline import Deadline
from barnabas.errors import KafkaError, error_for
from barnabas.types import TopicPartition

__all__ = ["CommittedOffset", "GroupAdmin", "GroupDescription", "GroupListing", "GroupMemberView"]


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

            for group in group_listings(self._retrying(once)):
                found[group.group_id] = group
        return [found[name] for name in sorted(found)]

    def describe_group(self, group_id: str) -> GroupDescription:
        """Raises GroupIdNotFound for what does not exist (Kafka answers so for its newer group types, too)."""
        from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest

        request = DescribeGroupsRequest(groups=[group_id])
        response = self.cluster.call_coordinator(group_id, request, check=lambda r: int(r.groups[0].error_code))
        group = response.groups[0]
        code = description_code(group)
        if code:
            raise group_error(code, group_id)
        return group_description(group, self.cluster.coordinator_id(group_id))

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
        request = delete_offsets_request(group_id, partitions)
        response = self.cluster.call_coordinator(group_id, request, check=lambda r: int(r.error_code))
        if response.error_code:
            raise group_error(response.error_code, group_id)
        return {
            TopicPartition(topic.name, p.partition_index): group_error(p.error_code, group_id) if p.error_code else None
            for topic in response.topics
            for p in topic.partitions
        }
