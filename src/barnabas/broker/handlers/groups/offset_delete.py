"""OffsetDelete v0: removes a group's offsets of topics that none of its members reads (KIP-496)."""

from collections.abc import Callable

from barnabas.broker.requests.duplicates import topics_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.errors import UnknownTopicOrPartition
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    broker: BrokerServices, request: OffsetDeleteRequest, context: RequestContext
) -> MaybeFuture[OffsetDeleteResponse]:
    request.topics = topics_once(request.topics, lambda topic: topic.name)
    wanted, refused = _resolve(broker, request)
    request.topics = wanted

    def start(reply: Callable[[OffsetDeleteResponse], None]) -> None:
        def finish(response: OffsetDeleteResponse) -> None:
            if response.error_code == 0:
                response.topics = _merged([*response.topics, *refused])
            reply(response)

        broker.groups.delete_offsets(request, reply=finish)

    return answer(broker.loop, start)


def _resolve(
    broker: BrokerServices, request: OffsetDeleteRequest
) -> tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]:
    """Returns the topics whose partitions exist, and the results of the others."""
    wanted, refused = [], []
    for topic in request.topics:
        known = broker.image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        missing = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
        there = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if there:
            wanted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
        if missing:
            partitions = [
                OffsetDeleteResponsePartition(partition_index=index, error_code=UnknownTopicOrPartition.code)
                for index in missing
            ]
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return wanted, refused


def _merged(topics: list[OffsetDeleteResponseTopic]) -> list[OffsetDeleteResponseTopic]:
    by_name: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in topics:
        known = by_name.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions = [*known.partitions, *topic.partitions]
    return list(by_name.values())
