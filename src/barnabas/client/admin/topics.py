"""Topics: requests to the controller and what it answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.offset_messages import by_topic, grouped
from barnabas.errors import KafkaError, UnknownTopicOrPartition, error_for
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest
    from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest

__all__ = [
    "CreatedTopic",
    "NewTopic",
    "create_partitions_request",
    "create_topics_request",
    "created_topic",
    "delete_records_request",
    "delete_topics_request",
    "elect_leaders_request",
    "election_answers",
    "partition_answers",
    "topic_error",
]


class NewTopic(NamedTuple):
    """A topic to be made; -1 leaves the choice to the broker.

    `assignments` places each partition on brokers, the preferred leader first; the two numbers stay -1 then.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignments: Mapping[int, Sequence[int]] = {}


class CreatedTopic(NamedTuple):
    """What the broker made; -1 where it is too old to say."""

    name: str
    partitions: int
    replication_factor: int


def topic_error(code: int, message: str | None, topic: str) -> KafkaError:
    """The error of a code with the topic in its words."""
    if code == UnknownTopicOrPartition.code:
        return error_for(code, f"topic {topic!r} does not exist")
    return error_for(code, message or f"topic {topic!r}: {error_for(code)}")


def partition_answers(response: Any) -> Iterable[tuple[TopicPartition, int, Any]]:
    """(partition, error code, answer) as most responses have them."""
    for topic in response.topics:
        for p in topic.partitions:
            yield TopicPartition(topic.name, p.partition_index), p.error_code, p


def create_topics_request(topics: Iterable[NewTopic], *, validate_only: bool, timeout_ms: int) -> "CreateTopicsRequest":
    from barnabas.protocol.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    wanted = [
        CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in topic.assignments.items()
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    return CreateTopicsRequest(topics=wanted, validate_only=validate_only, timeout_ms=timeout_ms)


def created_topic(answer: Any) -> CreatedTopic:
    return CreatedTopic(answer.name, answer.num_partitions, answer.replication_factor)


def delete_topics_request(names: Sequence[str], *, timeout_ms: int) -> "DeleteTopicsRequest":
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    topics = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=topics, topic_names=names, timeout_ms=timeout_ms)


def create_partitions_request(
    counts: Mapping[str, int], *, validate_only: bool, timeout_ms: int
) -> "CreatePartitionsRequest":
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    topics = [CreatePartitionsTopic(name=name, count=count) for name, count in counts.items()]
    for topic in topics:
        topic.assignments = None  # null: the broker places them
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def delete_records_request(before: Mapping[TopicPartition, int], *, timeout_ms: int) -> "DeleteRecordsRequest":
    from barnabas.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    topics = grouped(
        before,
        lambda where: DeleteRecordsPartition(partition_index=where.partition, offset=before[where]),
        lambda name, asked: DeleteRecordsTopic(name=name, partitions=asked),
    )
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def elect_leaders_request(
    partitions: Collection[TopicPartition] | None, *, unclean: bool, timeout_ms: int
) -> "ElectLeadersRequest":
    """None: every partition."""
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    request = ElectLeadersRequest(election_type=int(unclean), timeout_ms=timeout_ms)
    chosen = None if partitions is None else by_topic(partitions)
    request.topic_partitions = (
        None if chosen is None else [TopicPartitions(topic=t, partitions=ps) for t, ps in chosen.items()]
    )
    return request


def election_answers(response: Any) -> Iterable[tuple[TopicPartition, int, str | None]]:
    """(partition, error code, message) of each."""
    for topic in response.replica_election_results:
        for p in topic.partition_result:
            yield TopicPartition(topic.topic, p.partition_id), p.error_code, p.error_message
