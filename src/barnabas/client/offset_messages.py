"""Builds and reads requests about offsets in all their versions: committed offsets, and those of a log.

OffsetFetch asks for one group or for several. From version 10 on, it and OffsetCommit carry topic ids; the versions
below carry names, which need no lookup, and are the ones in use.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.protocol.messages import list_offsets, offset_commit, offset_fetch, offset_for_leader_epoch
from barnabas.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NAMES_UNTIL",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetsOfPartitions",
    "PartitionOffset",
    "by_topic",
    "commit_answers",
    "commit_request",
    "committed_answers",
    "committed_request",
    "epoch_answers",
    "epoch_request",
    "grouped",
    "offset_answers",
    "offset_request",
    "with_epoch",
]

P = TypeVar("P")
T = TypeVar("T")

NAMES_UNTIL: Final = 9
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_GROUPS_FROM: Final = 8


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, the epoch of the record before it, and a note of the application's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


def with_epoch(given: OffsetAndMetadata, offset: int, leader_epoch: int) -> OffsetAndMetadata:
    """Returns an offset that was given without an epoch with that of another `offset` at or behind it: epochs only
    grow, so no record before it is of a later one."""
    if given.leader_epoch != NO_LEADER_EPOCH or given.offset > offset:
        return given
    return given._replace(leader_epoch=leader_epoch)


class GroupMetadata(NamedTuple):
    """A consumer's membership in its group, for a producer that commits its offsets in a transaction. With the group's
    id alone the coordinator cannot check whether the group has moved on."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


OffsetsOfPartitions = (
    Mapping[TopicPartition, int]
    | Mapping[TopicPartition, OffsetAndMetadata]
    | Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[tuple[str, int], int]
    | Mapping[tuple[str, int], OffsetAndMetadata]
    | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""Offsets as applications write them; a mapping is invariant in its keys."""


class PartitionOffset(NamedTuple):
    """An offset with the timestamp and leader epoch that belong to it; -1 for none."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers by topic, as most requests have them."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def grouped(
    partitions: Iterable[TopicPartition],
    partition: Callable[[TopicPartition], P],
    topic: Callable[[str, list[P]], T],
) -> list[T]:
    """Returns a request's topics: `partition` makes each partition, `topic` each topic of its name and partitions."""
    return [
        topic(name, [partition(TopicPartition(name, index)) for index in indexes])
        for name, indexes in by_topic(partitions).items()
    ]


# --- committed offsets ------------------------------------------------------------------------------------------------


def committed_request(
    version: int, group_id: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool = False
) -> offset_fetch.OffsetFetchRequest:
    """Builds the request for a group's committed offsets, of these partitions or (None) of all. With `require_stable`
    the coordinator refuses while a transaction may still change them."""
    topics: Any = None
    if version >= _GROUPS_FROM:
        if partitions is not None:
            topics = [
                offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id)
        group.topics = topics
        return offset_fetch.OffsetFetchRequest(groups=[group], require_stable=require_stable)
    if partitions is not None:
        topics = [
            offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    request = offset_fetch.OffsetFetchRequest(group_id=group_id, require_stable=require_stable)
    request.topics = topics
    return request


def committed_answers(response: Any) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata | None]]]:
    """Returns the group's error code, and each partition's error code and committed offset (None for none)."""
    answer = response.groups[0] if response.groups else response
    found: dict[TopicPartition, tuple[int, OffsetAndMetadata | None]] = {}
    for topic in answer.topics or ():
        for p in topic.partitions:
            committed = None
            if p.committed_offset >= 0 and not p.error_code:
                committed = OffsetAndMetadata(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
            found[TopicPartition(topic.name, p.partition_index)] = p.error_code, committed
    return answer.error_code, found


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    generation_id: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
) -> offset_commit.OffsetCommitRequest:
    """Builds the request for a commit as a member of the group, or from outside of it."""

    def partition(topic_partition: TopicPartition) -> offset_commit.OffsetCommitRequestPartition:
        offset, metadata, leader_epoch = offsets[topic_partition]
        return offset_commit.OffsetCommitRequestPartition(
            partition_index=topic_partition.partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )

    topics = grouped(
        offsets,
        partition,
        lambda name, partitions: offset_commit.OffsetCommitRequestTopic(name=name, partitions=partitions),
    )
    return offset_commit.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    )


def commit_answers(response: Any) -> dict[TopicPartition, int]:
    """Returns the error code of each partition."""
    return {
        TopicPartition(topic.name, p.partition_index): p.error_code
        for topic in response.topics
        for p in topic.partitions
    }


# --- offsets of the log -----------------------------------------------------------------------------------------------


def offset_request(
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: int = 0,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> list_offsets.ListOffsetsRequest:
    """Builds the request for the first offset at or after each timestamp in ms, or EARLIEST, LATEST, MAX_TIMESTAMP."""
    epochs = leader_epochs or {}
    topics = grouped(
        timestamps,
        lambda p: list_offsets.ListOffsetsPartition(
            partition_index=p.partition,
            current_leader_epoch=epochs.get(p, NO_LEADER_EPOCH),
            timestamp=timestamps[p],
        ),
        lambda name, partitions: list_offsets.ListOffsetsTopic(name=name, partitions=partitions),
    )
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=timeout_ms
    )


def offset_answers(response: Any) -> Iterator[tuple[TopicPartition, int, PartitionOffset]]:
    """Yields (partition, error code, offset)."""
    for topic in response.topics:
        for p in topic.partitions:
            found = PartitionOffset(p.offset, p.timestamp, p.leader_epoch)
            yield TopicPartition(topic.name, p.partition_index), p.error_code, found


def epoch_request(
    epochs: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] | None = None
) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    """Builds the request for the end offset of each of these epochs."""
    current = leader_epochs or {}
    topics = grouped(
        epochs,
        lambda p: offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=p.partition,
            current_leader_epoch=current.get(p, NO_LEADER_EPOCH),
            leader_epoch=epochs[p],
        ),
        lambda name, partitions: offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=partitions),
    )
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def epoch_answers(response: Any) -> Iterator[tuple[TopicPartition, int, tuple[LeaderEpoch, Offset]]]:
    """Yields (partition, error code, (epoch, end offset)); the epoch is the largest one up to the requested one."""
    for topic in response.topics:
        for p in topic.partitions:
            yield TopicPartition(topic.topic, p.partition), p.error_code, (p.leader_epoch, p.end_offset)
