"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, DescribeTopicPartitions."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.server import Broker
from barnabas.config.definitions import ConfigSource
from barnabas.errors import (
    ElectionNotNeeded,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    NotController,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestedCursor,
    TopicRequest,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from broker.admin_rig import ask, create, running_broker, versions

NOBODY = UUID(int=7)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path) as broker:
        yield broker


def creatable_topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


# -- CreateTopics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_created_topic_is_led_when_the_answer_leaves(broker: Broker, version: int) -> None:
    (result,) = ask(broker, CreateTopicsRequest(topics=[creatable_topic("a", 3, retention_ms="7")]), version).topics
    assert (result.name, result.error_code, result.error_message) == ("a", 0, None)
    assert [partition.leader for partition in broker.image.topics["a"].partitions] == [1, 1, 1]
    assert broker.replica_manager.leader_of("a", 2).log.config.retention_ms == 7
    if version >= 7:
        assert result.topic_id == broker.image.topics["a"].topic_id
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        names = [config.name for config in result.configs]
        assert names == sorted(names)
        by_name = {config.name: config for config in result.configs}
        assert by_name["retention.ms"].value == "7"
        assert by_name["retention.ms"].config_source == ConfigSource.TOPIC_CONFIG
        assert by_name["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (creatable_topic("old"), TopicAlreadyExists.code),
        (creatable_topic("b b"), InvalidTopic.code),
        (creatable_topic(""), InvalidTopic.code),
        (creatable_topic("__cluster_metadata"), InvalidRequest.code),
        (creatable_topic("a", 0), InvalidPartitions.code),
        (creatable_topic("a", 1, 2), InvalidReplicationFactor.code),
        (creatable_topic("a", retention_ms="soon"), InvalidConfig.code),
        (creatable_topic("a", retention_ms=None), InvalidConfig.code),
        (creatable_topic("a", nonsense="1"), InvalidConfig.code),
    ],
)
@pytest.mark.parametrize("version", [2, 7])
def test_refused_topic(broker: Broker, topic: CreatableTopic, code: int, version: int) -> None:
    create(broker, "old")
    refused, granted = ask(broker, CreateTopicsRequest(topics=[topic, creatable_topic("good")]), version).topics
    assert (refused.name, refused.error_code) == (topic.name, code)
    assert refused.error_message
    assert (refused.num_partitions, refused.replication_factor, list(refused.configs)) == (-1, -1, [])
    assert granted.error_code == 0
    assert set(broker.image.topics) == {"old", "good"}


def test_topic_named_twice_is_answered_once_and_not_created(broker: Broker) -> None:
    topics = ask(
        broker, CreateTopicsRequest(topics=[creatable_topic("a"), creatable_topic("b"), creatable_topic("a", 2)])
    ).topics
    assert {(t.name, t.error_code) for t in topics} == {("a", InvalidRequest.code), ("b", 0)}
    assert len(topics) == 2
    assert set(broker.image.topics) == {"b"}


def test_validation_alone_creates_nothing(broker: Broker) -> None:
    (result,) = ask(broker, CreateTopicsRequest(topics=[creatable_topic("a", 2)], validate_only=True)).topics
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert not broker.image.topics


def test_chosen_replicas(broker: Broker) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in (1, 0)]
    topic = CreatableTopic(name="a", num_partitions=-1, replication_factor=-1, assignments=assignments)
    (result,) = ask(broker, CreateTopicsRequest(topics=[topic])).topics
    assert (result.error_code, result.num_partitions) == (0, 2)


def test_every_topic_fails_where_another_broker_decides(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotController("broker 2 is the controller")

    for method in ("create_topics", "create_partitions", "delete_topics", "elect_leaders"):
        monkeypatch.setattr(broker.controller, method, refuse)
    created = ask(broker, CreateTopicsRequest(topics=[creatable_topic("a"), creatable_topic("b")])).topics
    assert [(t.name, t.error_code) for t in created] == [("a", NotController.code), ("b", NotController.code)]
    grown = ask(broker, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)]))
    assert grown.results[0].error_code == NotController.code
    elected = ask(broker, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="a", partitions=[0])]))
    assert elected.error_code == NotController.code
    assert elected.replica_election_results[0].partition_result[0].error_code == NotController.code
    assert ask(broker, ElectLeadersRequest(topic_partitions=None)).replica_election_results == []


# -- DeleteTopics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_deleted_by_name(broker: Broker, version: int) -> None:
    create(broker, "a", 2)
    gone, missing = sorted(
        ask(broker, DeleteTopicsRequest(topic_names=["a", "nosuch"]), version).responses, key=lambda r: str(r.name)
    )
    assert (gone.name, gone.error_code, gone.error_message) == ("a", 0, None)
    assert (missing.name, missing.error_code) == ("nosuch", UnknownTopicOrPartition.code)
    assert (missing.error_message is None) == (version < 5)
    assert not broker.image.topics
    assert broker.replica_manager.get("a", 0) is None


def test_deleted_by_id(broker: Broker) -> None:
    create(broker, "a")
    topic_id = broker.image.topics["a"].topic_id
    states = [DeleteTopicState(name=None, topic_id=topic_id), DeleteTopicState(name=None, topic_id=NOBODY)]
    results = {r.topic_id: r for r in ask(broker, DeleteTopicsRequest(topics=states)).responses}
    assert (results[topic_id].name, results[topic_id].error_code) == ("a", 0)
    assert (results[NOBODY].name, results[NOBODY].error_code) == (None, UnknownTopicId.code)
    assert not broker.image.topics


def test_what_is_named_twice_stays(broker: Broker) -> None:
    for name in ("byname", "byid", "both", "mixed"):
        create(broker, name)
    ids = {name: topic.topic_id for name, topic in broker.image.topics.items()}
    states = [
        DeleteTopicState(name="byname"),
        DeleteTopicState(name="byname"),
        DeleteTopicState(name=None, topic_id=ids["byid"]),
        DeleteTopicState(name=None, topic_id=ids["byid"]),
        DeleteTopicState(name="byid"),
        DeleteTopicState(name="both", topic_id=ids["both"]),
        DeleteTopicState(name="mixed"),
        DeleteTopicState(name=None, topic_id=ids["mixed"]),
        DeleteTopicState(name=None),
    ]
    responses = ask(broker, DeleteTopicsRequest(topics=states)).responses
    assert {r.error_code for r in responses} == {InvalidRequest.code}
    assert sorted((str(r.name), r.error_message) for r in responses) == [
        ("None", "Duplicate topic id."),
        ("None", "Neither topic name nor id were specified."),
        ("both", "You may not specify both topic name and topic id."),
        ("byid", "The provided topic name maps to an ID that was already supplied."),
        ("byname", "Duplicate topic name."),
        ("mixed", "The provided topic name maps to an ID that was already supplied."),
    ]
    assert set(broker.image.topics) == set(ids)


@pytest.mark.parametrize(("version", "code"), [(1, InvalidRequest.code), (3, TopicDeletionDisabled.code)])
def test_deletion_can_be_disabled(tmp_path: Path, version: int, code: int) -> None:
    with running_broker(tmp_path, delete_topic_enable=False) as broker:
        create(broker, "a")
        (result,) = ask(broker, DeleteTopicsRequest(topic_names=["a"]), version).responses
        assert (result.name, result.error_code) == ("a", code)
        assert "a" in broker.image.topics


# -- CreatePartitions --------------------------------------------------------------------------------------------------


def more(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    chosen = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen)


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_more_partitions(broker: Broker, version: int) -> None:
    create(broker, "a")
    create(broker, "b")
    request = CreatePartitionsRequest(
        topics=[more("a", 3), more("b", 1), more("nosuch", 3), more("c", 1), more("c", 2)]
    )
    results = ask(broker, request, version).results
    codes = {r.name: r.error_code for r in results}
    assert codes == {
        "a": 0,
        "b": InvalidPartitions.code,
        "nosuch": UnknownTopicOrPartition.code,
        "c": InvalidRequest.code,
    }
    assert len(results) == 4
    assert results[0].error_message is None
    assert broker.replica_manager.leader_of("a", 2).is_leader


def test_more_partitions_on_chosen_brokers(broker: Broker) -> None:
    create(broker, "a")
    (validated,) = ask(broker, CreatePartitionsRequest(topics=[more("a", 2, [[1]])], validate_only=True)).results
    assert validated.error_code == 0
    assert len(broker.image.topics["a"].partitions) == 1
    (too_few,) = ask(broker, CreatePartitionsRequest(topics=[more("a", 2, [])])).results
    assert too_few.error_code == InvalidReplicaAssignment.code
    (done,) = ask(broker, CreatePartitionsRequest(topics=[more("a", 2, [[1]])])).results
    assert done.error_code == 0
    assert len(broker.image.topics["a"].partitions) == 2


# -- ElectLeaders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_elections_of_named_partitions(broker: Broker, version: int) -> None:
    create(broker, "a")
    wanted = [TopicPartitions(topic="a", partitions=[0, 5]), TopicPartitions(topic="nosuch", partitions=[0])]
    answer = ask(broker, ElectLeadersRequest(topic_partitions=wanted), version)
    assert answer.error_code == 0
    found = {
        (topic.topic, result.partition_id): result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }
    assert found == {
        ("a", 0): ElectionNotNeeded.code,
        ("a", 5): UnknownTopicOrPartition.code,
        ("nosuch", 0): UnknownTopicOrPartition.code,
    }


def test_election_everywhere_is_silent_where_none_is_needed(broker: Broker) -> None:
    create(broker, "a", 2)
    answer = ask(broker, ElectLeadersRequest(topic_partitions=None))
    assert [(r.topic, list(r.partition_result)) for r in answer.replica_election_results] == [("a", [])]


def test_unknown_type_of_election(broker: Broker) -> None:
    create(broker, "a")
    wanted = [TopicPartitions(topic="a", partitions=[0])]
    answer = ask(broker, ElectLeadersRequest(election_type=9, topic_partitions=wanted))
    assert answer.error_code == InvalidRequest.code
    assert answer.replica_election_results[0].partition_result[0].error_code == InvalidRequest.code


# -- DescribeTopicPartitions -------------------------------------------------------------------------------------------


def pages(broker: Broker, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """Page by page, what each topic showed."""
    found: list[list[tuple[str, list[int]]]] = []
    cursor = None
    while True:
        topics = [TopicRequest(name=name) for name in names]
        answer = ask(
            broker, DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        )
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        assert len(found) < 20
        if answer.next_cursor is None:
            return found
        cursor = RequestedCursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )


def test_pages_cover_everything_once(broker: Broker) -> None:
    create(broker, "b", 2)
    create(broker, "a", 3)
    assert pages(broker, [], 2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1])]]
    assert pages(broker, [], 3) == [[("a", [0, 1, 2])], [("b", [0, 1])]]
    assert pages(broker, ["b", "a", "b"], 2000) == [[("a", [0, 1, 2]), ("b", [0, 1])]]
    assert pages(broker, ["b"], -1) == [[("b", [0])], [("b", [1])]]


def test_page_is_never_larger_than_the_broker_allows(tmp_path: Path) -> None:
    with running_broker(tmp_path, max_request_partition_size_limit=2) as broker:
        create(broker, "a", 3)
        assert pages(broker, [], 2000) == [[("a", [0, 1])], [("a", [2])]]


def test_missing_topics_take_no_room(broker: Broker) -> None:
    create(broker, "b")
    answer = ask(
        broker,
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in ("b", "a", "a!")], response_partition_limit=1
        ),
    )
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", UnknownTopicOrPartition.code),
        ("a!", InvalidTopic.code),
        ("b", 0),
    ]
    assert answer.next_cursor is None
    (partition,) = answer.topics[2].partitions
    assert (partition.leader_id, partition.isr_nodes, partition.eligible_leader_replicas) == (1, [1], [])
    assert answer.topics[2].topic_id == broker.image.topics["b"].topic_id


@pytest.mark.parametrize(("topic", "partition"), [("b", 0), ("a", -1)])
def test_bad_cursor(broker: Broker, topic: str, partition: int) -> None:
    create(broker, "a")
    cursor = RequestedCursor(topic_name=topic, partition_index=partition)
    answer = ask(broker, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor))
    assert [(t.name, t.error_code) for t in answer.topics] == [("a", InvalidRequest.code)]
