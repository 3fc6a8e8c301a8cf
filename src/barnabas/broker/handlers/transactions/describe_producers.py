"""DescribeProducers v0: the idempotent and transactional producers whose state a partition's log keeps.

Any replica answers, as in Kafka, not only the leader.
"""

from functools import partial

from barnabas.broker.requests.duplicates import partitions_once
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    broker: BrokerServices, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=name, partitions=LazySequence(indexes, partial(_partition, broker, name)))
            for name, indexes in partitions_once((t.name, t.partition_indexes) for t in request.topics).items()
        ]
    )


def _partition(broker: BrokerServices, topic: str, index: int) -> PartitionResponse:
    try:
        producers = _producers(broker, topic, index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(partition_index=index, active_producers=producers)


def _producers(broker: BrokerServices, topic: str, index: int) -> list[ProducerState]:
    validate_topic_name(topic)
    if topic not in broker.image.topics:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    partition = broker.replica_manager.get(topic, index)
    if partition is None:
        partition = broker.replica_manager.leader_of(topic, index)  # raises the error that fits
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.current_txn_first_offset,
        )
        for entry in partition.log.active_producers()
    ]
