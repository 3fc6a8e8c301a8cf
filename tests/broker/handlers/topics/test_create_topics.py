"""CreateTopics, and every change of topics where another broker decides."""

import pytest

from barnabas.broker.server import Broker
from barnabas.config.definitions import ConfigSource
from barnabas.controller.controller import Controller
from barnabas.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    NotController,
    TopicAlreadyExists,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from broker.admin_rig import ask, create, versions
from broker.admin_rig import broker as broker


def creatable_topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


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
        monkeypatch.setattr(Controller, method, refuse)
    created = ask(broker, CreateTopicsRequest(topics=[creatable_topic("a"), creatable_topic("b")])).topics
    assert [(t.name, t.error_code) for t in created] == [("a", NotController.code), ("b", NotController.code)]
    grown = ask(broker, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)]))
    assert grown.results[0].error_code == NotController.code
    elected = ask(broker, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="a", partitions=[0])]))
    assert elected.error_code == NotController.code
    assert elected.replica_election_results[0].partition_result[0].error_code == NotController.code
    assert ask(broker, ElectLeadersRequest(topic_partitions=None)).replica_election_results == []
