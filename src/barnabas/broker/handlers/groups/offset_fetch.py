"""OffsetFetch v1-v10: one group until v7, many from v8 on; topics by id from v10 on; no topics means all of them.

Errors of a group stand in each partition in v1, at the response's top in v2-v7, in the group's part from v8 on.

Where we differ from Kafka: after 250,000 offsets in one answer further groups get COORDINATOR_LOAD_IN_PROGRESS, upon
which clients ask for them again.
"""

from collections.abc import Callable, Sequence

from barnabas.broker.requests.duplicates import once, partitions_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.errors import UnknownTopicId
from barnabas.protocol.messages.offset_fetch import (
    ZERO_UUID,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.types import NO_OFFSET

FIRST_VERSION_WITH_TOP_LEVEL_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(
    broker: BrokerServices, request: OffsetFetchRequest, context: RequestContext
) -> MaybeFuture[OffsetFetchResponse]:
    version = context.api_version
    if version < FIRST_VERSION_WITH_MANY_GROUPS:
        return _of_one(broker, request, version)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    asked = once(request.groups, lambda group: group.group_id)
    for group in asked:
        group.topics = _topics_once(group.topics)
    unknown = [_resolve_ids(broker, group) if by_id else [] for group in asked]

    def start(reply: Callable[[OffsetFetchResponse], None]) -> None:
        def finish(groups: list[OffsetFetchResponseGroup]) -> None:
            for group, refused in zip(groups, unknown, strict=True):
                if by_id and group.error_code == 0:
                    group.topics = [*_with_ids(broker, group.topics), *refused]
            reply(OffsetFetchResponse(groups=groups))

        broker.groups.fetch_offsets(asked, require_stable=request.require_stable, reply=finish)

    return answer(broker.loop, start)


def _topics_once(
    topics: Sequence[OffsetFetchRequestTopics] | Sequence[OffsetFetchRequestTopic] | None,
) -> list[OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    wanted = partitions_once(
        ((topic.name, getattr(topic, "topic_id", ZERO_UUID)), topic.partition_indexes) for topic in topics
    )
    return [
        OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
        for (name, topic_id), indexes in wanted.items()
    ]


def _resolve_ids(broker: BrokerServices, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Fills in topic names. Removes topics that do not exist and returns their results."""
    if group.topics is None:
        return []
    known, refused = [], []
    for topic in group.topics:
        found = broker.image.topic_by_id(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
            continue
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, error_code=UnknownTopicId.code
            )
            for index in topic.partition_indexes
        ]
        refused.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
    group.topics = known
    return refused


def _with_ids(broker: BrokerServices, topics: Sequence[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Fills in topic ids. Leaves out topics that were deleted meanwhile."""
    named = []
    for topic in topics:
        if topic.topic_id.int == 0:
            known = broker.image.topics.get(topic.name)
            if known is None:
                continue
            topic.topic_id = known.topic_id
        named.append(topic)
    return named


def _of_one(broker: BrokerServices, request: OffsetFetchRequest, version: int) -> MaybeFuture[OffsetFetchResponse]:
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=_topics_once(request.topics))

    def start(reply: Callable[[OffsetFetchResponse], None]) -> None:
        def finish(groups: list[OffsetFetchResponseGroup]) -> None:
            reply(_old_response(group, groups[0], version))

        broker.groups.fetch_offsets([group], require_stable=request.require_stable, reply=finish)

    return answer(broker.loop, start)


def _old_response(asked: OffsetFetchRequestGroup, group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    code = group.error_code
    if code and version < FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
        return OffsetFetchResponse(topics=_failed_partitions(asked, code))
    topics = [
        OffsetFetchResponseTopic(name=topic.name, partitions=LazySequence(topic.partitions, _old_partition))
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=code)


def _old_partition(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def _failed_partitions(asked: OffsetFetchRequestGroup, error_code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, error_code=error_code)
                for index in topic.partition_indexes
            ],
        )
        for topic in asked.topics or ()
    ]
