"""OffsetCommit v2-v10: topics by name, from v10 on by id. Topics and partitions that do not exist are refused here; the
group coordinator checks the rest."""

from collections.abc import Callable, Iterable

from barnabas.broker.requests.committed_topics import merged, resolve
from barnabas.broker.requests.duplicates import topics_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
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
    wanted, refused = resolve(broker.image, request.topics, by_id=by_id, refuse=_refusal)
    if not wanted:
        return OffsetCommitResponse(topics=refused)
    request.topics = wanted

    def start(reply: Callable[[OffsetCommitResponse], None]) -> None:
        def answered(response: OffsetCommitResponse) -> None:
            if refused:
                response.topics = merged(response.topics, refused)
            reply(response)

        broker.groups.commit_offsets(request, api_version=context.api_version, reply=answered)

    return answer(broker.loop, start)


def _refusal(topic: OffsetCommitRequestTopic, partitions: Iterable[int], error_code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=error_code) for index in partitions
        ],
    )
