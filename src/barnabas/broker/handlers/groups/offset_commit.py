"""OffsetCommit v2-v10: topics by name, from v10 on by id. Topics and partitions that do not exist are refused here; the
group coordinator checks the rest."""

from collections.abc import Callable

from barnabas.broker.requests.duplicates import topics_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.errors import UnknownTopicId, UnknownTopicOrPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(
    broker: BrokerServices, request: OffsetCommitRequest, context: RequestContext
) -> MaybeFuture[OffsetCommitResponse]:
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    request.topics = topics_once(request.topics, lambda topic: topic.topic_id if by_id else topic.name)
    wanted, refused = _resolve(broker, request, by_id)
    if not wanted:
        return OffsetCommitResponse(topics=refused)
    request.topics = wanted

    def start(reply: Callable[[OffsetCommitResponse], None]) -> None:
        broker.groups.commit_offsets(
            request, api_version=context.api_version, reply=lambda response: reply(_merged(response, refused))
        )

    return answer(broker.loop, start)


def _resolve(
    broker: BrokerServices, request: OffsetCommitRequest, by_id: bool
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Returns the topics with name and id whose partitions exist, and the results of the others."""
    image = broker.image
    wanted: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            code = UnknownTopicId.code if by_id else UnknownTopicOrPartition.code
            refused.append(_refusal(topic, [p.partition_index for p in topic.partitions], code))
            continue
        topic.name, topic.topic_id = known.name, known.topic_id
        count = len(known.partitions)
        missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
        if missing:
            refused.append(_refusal(topic, missing, UnknownTopicOrPartition.code))
        partitions = topic.partitions
        if missing:
            partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if partitions:
            topic.partitions = partitions
            wanted.append(topic)
    return wanted, refused


def _refusal(topic: OffsetCommitRequestTopic, partitions: list[int], error_code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=error_code) for index in partitions
        ],
    )


def _merged(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    if not refused:
        return response
    topics = {(topic.topic_id, topic.name): topic for topic in response.topics}
    for topic in refused:
        known = topics.get((topic.topic_id, topic.name))
        if known is None:
            topics[topic.topic_id, topic.name] = topic
        else:
            known.partitions = [*known.partitions, *topic.partitions]
    response.topics = list(topics.values())
    return response
