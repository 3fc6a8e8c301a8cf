"""DeleteRecords v0-v2: moves the start of a log up; -1 stands for the high watermark."""

from barnabas.broker.requests.duplicates import topics_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.errors import InvalidTopic, KafkaError, OffsetOutOfRange, PolicyViolation
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.types import Offset


def handle(broker: BrokerServices, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = []
    for topic in topics_once(request.topics, lambda topic: topic.name):
        partitions = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            try:
                result.low_watermark = _delete(broker, topic.name, wanted.partition_index, wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
            partitions.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(broker: BrokerServices, topic: str, index: int, offset: int) -> int:
    image = broker.image.topics.get(topic)
    if image is not None and image.is_internal:
        raise InvalidTopic(f"records of the internal topic {topic} cannot be deleted")
    partition = broker.replica_manager.leader_of(topic, index)
    policy = partition.log.config.cleanup_policy
    if policy and "delete" not in policy:
        raise PolicyViolation(f"cleanup.policy of {topic} is {','.join(policy)}: its records are not for deletion")
    if offset < -1 or offset > partition.log.high_watermark:
        raise OffsetOutOfRange(f"offset {offset} is beyond the high watermark {partition.log.high_watermark}")
    return partition.delete_records(Offset(offset))
