"""OffsetFetch and OffsetCommit over a Cluster."""

from collections.abc import Collection, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.core.offset_messages import (
    NAMES_UNTIL,
    OffsetAndMetadata,
    commit_answers,
    commit_request,
    committed_answers,
    committed_request,
)
from barnabas.client.deadline import Deadline
from barnabas.errors import KafkaError, error_for
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.types import TopicPartition

__all__ = ["commit", "fetch_committed"]


def fetch_committed(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition] | None, deadline: Deadline
) -> dict[TopicPartition, tuple[int, int, str]]:
    """(offset, leader epoch, metadata) of what is committed. Raises the answer's KafkaError."""
    connection = cluster.coordinator(group_id, deadline)
    version = connection.version_of(offset_fetch.OffsetFetchRequest, at_most=NAMES_UNTIL)
    response = connection.call(committed_request(version, group_id, partitions), deadline, version=version)
    error_code, answers = committed_answers(response)
    if error_code:
        raise error_for(error_code)
    found = {}
    for where, (code, committed) in answers.items():
        if code:
            raise error_for(code)
        if committed is not None:
            found[where] = (committed.offset, committed.leader_epoch, committed.metadata)
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
    from barnabas.client.core.admin.groups import group_error

    connection = cluster.coordinator(group_id, deadline)
    version = connection.version_of(offset_commit.OffsetCommitRequest, at_most=NAMES_UNTIL)
    request = commit_request(
        group_id,
        {where: OffsetAndMetadata(offset) for where, offset in offsets.items()},
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
    )
    found: dict[TopicPartition, KafkaError | None] = {}
    for where, code in commit_answers(connection.call(request, deadline, version=version)).items():
        error = group_error(code, group_id) if code else None
        if error is not None and error.retriable and code != 3:
            raise error
        found[where] = error
    return found
