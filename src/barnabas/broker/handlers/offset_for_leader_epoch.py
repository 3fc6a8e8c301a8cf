"""OffsetForLeaderEpoch v2-v4: where a leader epoch ends, so that a client can tell whether its log was cut."""

from typing import TYPE_CHECKING

from barnabas.broker.context import RequestContext
from barnabas.errors import KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.server import Broker


def handle(
    broker: "Broker", request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            result = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
            try:
                partition = broker.replica_manager.leader_of(topic.topic, wanted.partition)
                partition.check_leader(wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.end_of_epoch(wanted.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
            partitions.append(result)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)
