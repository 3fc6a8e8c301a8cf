"""DescribeTopicPartitions v0: topics by name, page by page (KIP-966).

A page holds at most `response_partition_limit` partitions, and never more than `max.request.partition.size.limit`; the
cursor says where the next one begins. Topics that do not exist do not count.
"""

from barnabas.broker.handlers.topics.metadata import TOPIC_OPERATIONS
from barnabas.broker.requests.request_context import RequestContext
from barnabas.broker.requests.sliced_responses import LazySequence
from barnabas.broker.services import BrokerServices
from barnabas.errors import InvalidRequest, InvalidTopic, KafkaError, UnknownTopicOrPartition
from barnabas.metadata.image import MetadataImage, TopicImage
from barnabas.metadata.topic_names import validate_topic_name
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribedCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    broker: BrokerServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    image = broker.image
    limit = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    try:
        names = _names(image, request)
    except KafkaError as error:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code) for topic in request.topics
            ]
        )
    first = request.cursor.partition_index if request.cursor is not None else 0
    started_in = request.cursor.topic_name if request.cursor is not None else ""
    described: dict[str, range] = {}
    cursor = None
    for position, name in enumerate(names):
        if limit == 0:
            names, cursor = names[:position], DescribedCursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            continue
        start = first if name == started_in else 0
        end = min(len(topic.partitions), start + limit)
        described[name] = range(start, end)
        if end < len(topic.partitions):
            names, cursor = names[: position + 1], DescribedCursor(topic_name=name, partition_index=end)
            break
        limit -= max(0, end - start)

    def one(name: str) -> DescribeTopicPartitionsResponseTopic:
        return _described(image, image.topics[name], described[name]) if name in described else _missing(name)

    return DescribeTopicPartitionsResponse(topics=LazySequence(names, one), next_cursor=cursor)


def _names(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Returns the topics to describe in order, from the cursor on. Raises InvalidRequest."""
    asked = {topic.name for topic in request.topics} or set(image.topics)
    cursor = request.cursor
    if cursor is None:
        return sorted(asked)
    if request.topics and cursor.topic_name not in asked:
        raise InvalidRequest(
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
        )
    if cursor.partition_index < 0:
        raise InvalidRequest(f"a cursor cannot begin at partition {cursor.partition_index}")
    return sorted(name for name in asked if name >= cursor.topic_name)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = UnknownTopicOrPartition.code
    try:
        validate_topic_name(name)
    except InvalidTopic as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(image: MetadataImage, topic: TopicImage, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number in numbers:
        partition = topic.partitions[number]
        described = DescribeTopicPartitionsResponsePartition(
            partition_index=number,
            leader_id=partition.leader if image.is_active(partition.leader) else -1,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
            offline_replicas=[replica for replica in partition.replicas if not image.is_active(replica)],
        )
        partitions.append(described)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
