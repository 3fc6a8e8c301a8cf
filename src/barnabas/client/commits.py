"""OffsetFetch and OffsetCommit in the shapes of all their versions: one group or several, topic names or topic ids."""

from collections.abc import Collection, Mapping
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.deadline import Deadline
from barnabas.client.offsets import by_topic
from barnabas.errors import KafkaError, error_for
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.types import TopicPartition

__all__ = ["commit", "fetch_committed"]

NAMES_UNTIL = 9
"""From version 10 both requests carry topic ids; names work in every version below and need no look-up."""


def fetch_committed(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition] | None, deadline: Deadline
) -> dict[TopicPartition, tuple[int, int, str]]:
    """(offset, leader epoch, metadata) of what is committed. Raises the answer's KafkaError."""
    connection = cluster.coordinator(group_id, deadline)
    version = connection.version_of(offset_fetch.OffsetFetchRequest, at_most=NAMES_UNTIL)
    topics: Any = None
    if version >= 8:
        if partitions is not None:
            topics = [
                offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id)
        group.topics = topics
        request = offset_fetch.OffsetFetchRequest(groups=[group])
    else:
        if partitions is not None:
            topics = [
                offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = offset_fetch.OffsetFetchRequest(group_id=group_id)
        request.topics = topics
    response = connection.call(request, deadline, version=version)
    answer: Any = response.groups[0] if version >= 8 else response
    if answer.error_code:
        raise error_for(answer.error_code)
    found = {}
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                raise error_for(p.error_code)
            if p.committed_offset >= 0:
                where = TopicPartition(topic.name, p.partition_index)
                found[where] = (p.committed_offset, p.committed_leader_epoch, p.metadata or "")
    return found


def commit(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    generation_id: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """Commit as a member, or from outside without one. Raises a retriable KafkaError; others are values."""
    from barnabas.client.group_admin import group_error

    connection = cluster.coordinator(group_id, deadline)
    version = connection.version_of(offset_commit.OffsetCommitRequest, at_most=NAMES_UNTIL)
    topics = [
        offset_commit.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=p, committed_offset=offsets[TopicPartition(topic, p)]
                )
                for p in indexes
            ],
        )
        for topic, indexes in by_topic(offsets).items()
    ]
    request = offset_commit.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    )
    response = connection.call(request, deadline, version=version)
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.topics:
        for p in topic.partitions:
            error = group_error(p.error_code, group_id) if p.error_code else None
            if error is not None and error.retriable and p.error_code != 3:
                raise error
            found[TopicPartition(topic.name, p.partition_index)] = error
    return found
