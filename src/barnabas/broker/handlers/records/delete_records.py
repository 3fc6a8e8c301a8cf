"""DeleteRecords v0-v2: moves the start of a log up; -1 stands for the high watermark.

The response waits until all live replicas have deleted the records.
"""

from collections.abc import Callable

from barnabas.broker.delayed_delete_records import DelayedDeleteRecords, Undeleted
from barnabas.broker.requests.duplicates import topics_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import MaybeFuture, answer
from barnabas.errors import InvalidTopic, KafkaError, OffsetOutOfRange, PolicyViolation
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.types import Offset


def handle(
    broker: BrokerServices, request: DeleteRecordsRequest, context: RequestContext
) -> MaybeFuture[DeleteRecordsResponse]:
    topics = []
    waiting: list[Undeleted] = []
    for topic in topics_once(request.topics, lambda topic: topic.name):
        partitions = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            try:
                undeleted = _delete(broker, topic.name, wanted.offset, result)
                if undeleted is not None:
                    waiting.append(undeleted)
            except KafkaError as error:
                result.error_code = error.code
            partitions.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    response = DeleteRecordsResponse(topics=topics)
    if not waiting:
        return response

    def start(reply: Callable[[DeleteRecordsResponse], None]) -> None:
        wait = DelayedDeleteRecords(waiting, lambda: reply(response))
        broker.purgatory.delay(wait, None, wait.partitions, max(0, request.timeout_ms) / 1000)

    return answer(broker.loop, start)


def _delete(broker: BrokerServices, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> Undeleted | None:
    """Deletes the leader's records. Returns the partition if a follower still has to."""
    image = broker.image.topics.get(topic)
    if image is not None and image.is_internal:
        raise InvalidTopic(f"records of the internal topic {topic} cannot be deleted")
    partition = broker.replica_manager.leader_of(topic, result.partition_index)
    policy = partition.log.config.cleanup_policy
    if policy and "delete" not in policy:
        raise PolicyViolation(f"cleanup.policy of {topic} is {','.join(policy)}: its records are not for deletion")
    if offset < -1 or offset > partition.log.high_watermark:
        raise OffsetOutOfRange(f"offset {offset} is beyond the high watermark {partition.log.high_watermark}")
    wanted = partition.delete_records(Offset(offset))
    low_watermark = partition.low_watermark()
    if low_watermark < wanted:
        return Undeleted(partition, wanted, result)
    result.low_watermark = low_watermark
    return None
