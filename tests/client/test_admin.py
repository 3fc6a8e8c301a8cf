import pytest

from barnabas.client.admin import Admin, CreatedTopic, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.client.simple_producer import SimpleProducer
from barnabas.errors import (
    InvalidConfig,
    InvalidPartitions,
    KafkaError,
    NotController,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.testing import Broker
from barnabas.types import TopicPartition


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return Admin(cluster)


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    admin.create_topics([NewTopic(name, 2)])
    return name


def write(cluster: Cluster, topic: str, *timestamps: int, partition: int = 0) -> None:
    with SimpleProducer(cluster) as producer:
        for timestamp in timestamps:
            producer.send(topic, b"v", timestamp=timestamp, partition=partition)


def test_one_topic_of_several_may_fail(admin: Admin, topic: str, name: str) -> None:
    results = admin.create_topics([NewTopic(topic), NewTopic(f"{name}-new", 3)])
    assert isinstance(results[topic], TopicAlreadyExists)
    assert results[f"{name}-new"] == CreatedTopic(f"{name}-new", 3, 1)
    deleted = admin.delete_topics([f"{name}-new", f"{name}-none"])
    assert deleted[f"{name}-new"] is None
    assert isinstance(deleted[f"{name}-none"], UnknownTopicOrPartition)


def test_validating_only_makes_nothing(admin: Admin, topic: str, name: str) -> None:
    admin.create_topics([NewTopic(f"{name}-tried", 3)], validate_only=True)
    admin.create_partitions({topic: 5}, validate_only=True)
    views = admin.describe_topics([topic, f"{name}-tried"])
    assert isinstance(views[f"{name}-tried"], UnknownTopicOrPartition)
    view = views[topic]
    assert not isinstance(view, KafkaError)
    assert sorted(view.partitions) == [0, 1]


def test_partitions_are_added_and_never_taken(admin: Admin, topic: str) -> None:
    assert admin.create_partitions({topic: 4}) == {topic: None}
    assert len(admin.cluster.topic(topic).partitions) == 4
    assert isinstance(admin.create_partitions({topic: 3})[topic], InvalidPartitions)


def test_offsets_by_position_and_time(admin: Admin, topic: str) -> None:
    write(admin.cluster, topic, 100, 300, 200)
    where, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def offset(timestamp: int) -> int:
        return admin.list_offsets({where: timestamp})[where].offset

    assert [offset(EARLIEST), offset(LATEST), offset(MAX_TIMESTAMP)] == [0, 3, 1]
    assert [offset(50), offset(101), offset(250), offset(301)] == [0, 1, 1, -1]
    assert admin.watermarks([where, empty]) == {where: (0, 3), empty: (0, 0)}
    assert admin.offsets_for_leader_epoch({where: 0}) == {where: (0, 3)}


def test_records_are_deleted_up_to_an_offset(admin: Admin, topic: str) -> None:
    write(admin.cluster, topic, 1, 2, 3)
    where = TopicPartition(topic, 0)
    assert admin.delete_records({where: 2}) == {where: 2}
    assert admin.watermarks([where]) == {where: (2, 3)}
    assert admin.delete_records({where: -1}) == {where: 3}
    with pytest.raises(OffsetOutOfRange):
        admin.delete_records({where: 9})


def test_settings_of_topics_and_brokers(admin: Admin, topic: str) -> None:
    def value(key: str) -> tuple[str | None, str]:
        entry = admin.describe_configs("topic", topic, [key])[0]
        return entry.value, entry.source

    assert value("retention.ms")[1] == "DEFAULT_CONFIG"
    admin.alter_configs("topic", topic, set_values={"retention.ms": "5000", "cleanup.policy": "delete"})
    admin.alter_configs("topic", topic, append={"cleanup.policy": "compact"})
    assert value("retention.ms") == ("5000", "DYNAMIC_TOPIC_CONFIG")
    assert sorted((value("cleanup.policy")[0] or "").split(",")) == ["compact", "delete"]
    admin.replace_configs("topic", topic, {"retention.ms": "6000"})
    assert value("retention.ms")[0] == "6000"
    assert value("cleanup.policy")[1] == "DEFAULT_CONFIG"
    admin.alter_configs("topic", topic, delete=["retention.ms"])
    assert value("retention.ms")[1] == "DEFAULT_CONFIG"
    with pytest.raises(InvalidConfig):
        admin.alter_configs("topic", topic, set_values={"retention.ms": "soon"}, validate_only=True)
    with pytest.raises(UnknownTopicOrPartition):
        admin.describe_configs("topic", f"{topic}-none")
    node_id = next(iter(admin.describe_cluster().brokers))
    assert admin.describe_configs("broker", str(node_id), ["node.id"])[0].value == str(node_id)
    with pytest.raises(UsageError, match="not in the cluster"):
        admin.describe_configs("broker", "99")
    with pytest.raises(UsageError, match="has no settings"):
        admin.describe_configs("toaster", "1")


def test_what_the_broker_stores(admin: Admin, topic: str) -> None:
    write(admin.cluster, topic, 1)
    directories = admin.describe_log_dirs()
    replicas = {(r.topic, r.partition): r.size_bytes for d in directories for r in d.replicas}
    assert replicas[topic, 0] > 60
    assert replicas[topic, 1] == 0
    with SimpleProducer(admin.cluster, idempotent=True) as producer:
        producer.send(topic, b"v", partition=1)
    partition = TopicPartition(topic, 1)
    assert [p.last_sequence for p in admin.describe_producers([partition])[partition]] == [0]
    assert ("topic", topic) in admin.list_config_resources(["topic"])
    admin.elect_leaders([TopicPartition(topic, 0)])


def test_groups_that_are_not_there(admin: Admin, name: str) -> None:
    assert admin.committed_offsets(name) == {}
    assert str(admin.delete_groups([name])[name]) == f"group '{name}' does not exist"
    assert name not in [group.group_id for group in admin.list_groups()]


def test_calls_go_on_when_leader_or_controller_moved(broker: Broker, admin: Admin, topic: str) -> None:
    rules = [
        broker.faults.error("LIST_OFFSETS", NotLeaderOrFollower),
        broker.faults.disconnect("LIST_OFFSETS"),
        broker.faults.error("CREATE_PARTITIONS", NotController),
    ]
    assert admin.list_offsets({TopicPartition(topic, 0): LATEST})[TopicPartition(topic, 0)].offset == 0
    assert admin.create_partitions({topic: 3}) == {topic: None}
    assert [rule.hits for rule in rules] == [1, 1, 1]
