"""OffsetForLeaderEpoch v2-v4: where a leader epoch ends, so that a client can tell whether its log was cut."""

from functools import partial

from barnabas.broker.requests.duplicates import once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.types import LeaderEpoch


def handle(
    broker: BrokerServices, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for topic in request.topics:
        topics.setdefault(topic.topic, []).extend(topic.partitions)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=name,
                partitions=LazySequence(
                    once(partitions, lambda wanted: wanted.partition), partial(_find, broker, name)
                ),
            )
            for name, partitions in topics.items()
        ]
    )


def _find(broker: BrokerServices, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
    try:
        partition = broker.replica_manager.leader_of(topic, wanted.partition)
        partition.check_leader(LeaderEpoch(wanted.current_leader_epoch))
        result.leader_epoch, result.end_offset = partition.end_of_epoch(LeaderEpoch(wanted.leader_epoch))
    except KafkaError as error:
        result.error_code = error.code
    return result
