"""`barnabas.Admin` and `barnabas.aio.Admin` against the broker under test: what they read is what any broker says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.admin.configs import ConfigChange, ConfigResource
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ItemsFailed, KeysMove, TopicNotFound
from barnabas.errors import (
    GroupIdNotFound,
    InvalidConfig,
    TopicAlreadyExists,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.types import TopicPartition

from .conftest import wait_for
from .harness import wire
from .harness.broker import Broker

Call = Callable[..., Any]


@pytest.fixture(params=["sync", "aio"])
def call(request: pytest.FixtureRequest, broker: Broker) -> Call:
    """`call("list_topics")`, by either front."""

    def sync(name: str, *args: Any, **kwargs: Any) -> Any:
        with barnabas.Admin(bootstrap_servers=broker.bootstrap) as admin:
            return getattr(admin, name)(*args, **kwargs)

    async def awaited(name: str, *args: Any, **kwargs: Any) -> Any:
        async with barnabas.aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            return await getattr(admin, name)(*args, **kwargs)

    if request.param == "sync":
        return sync
    return lambda *args, **kwargs: asyncio.run(awaited(*args, **kwargs))


def test_topics(call: Call, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    assert call("create_topics", NewTopic(name, 3, 1, {"retention.ms": "1000"}))[name].partitions == 3
    wait_for("the topic", lambda: name in {topic.name for topic in call("list_topics")})
    with pytest.raises(ItemsFailed) as caught:
        call("create_topics", [name])
    assert caught.value.only(TopicAlreadyExists)
    call("create_partitions", {name: 4})
    wait_for("four partitions", lambda: len(call("describe_topics", name)[name].partitions) == 4)
    call("delete_topics", name)
    with pytest.raises(ItemsFailed) as caught:
        call("delete_topics", name)
    assert caught.value.only(UnknownTopicOrPartition)


def test_records(call: Call, broker: Broker, topic: str) -> None:
    with wire.Connection(broker.address) as connection:
        assert wire.produce(connection, topic, 0, wire.simple_batch(b"a", b"b", b"c")).error == 0
    topic_partition = TopicPartition(topic, 0)
    assert call("list_offsets", {topic_partition: "latest"}, isolation="read_committed")[topic_partition].offset == 3
    assert call("list_offsets", {topic_partition: 0})[topic_partition].offset == 0
    assert call("list_offsets", {topic_partition: "max_timestamp"})[topic_partition].offset >= 0
    assert call("delete_records", {topic_partition: 2}) == {topic_partition: 2}
    assert call("list_offsets", {topic_partition: "earliest"})[topic_partition].offset == 2
    assert call("describe_producers", [topic_partition]) == {topic_partition: []}
    with pytest.raises(ItemsFailed) as caught:
        call("list_offsets", {topic_partition: "latest", (topic, 9): "latest"})
    assert caught.value.only(TopicNotFound)
    with pytest.warns(KeysMove, match=topic):
        call("create_partitions", {topic: 2})


def test_settings(call: Call, topic: str) -> None:
    resource = ConfigResource("topic", topic)
    call("alter_configs", {resource: {"retention.ms": "5000"}})
    call("alter_configs", {resource: [ConfigChange("cleanup.policy", "compact", "append")]})

    def values() -> list[str]:
        found = call("describe_configs", [resource], keys=["retention.ms", "cleanup.policy"])[resource]
        return [found["retention.ms"].value, found["cleanup.policy"].value]

    wait_for("the settings", lambda: values() == ["5000", "delete,compact"])
    assert resource in call("list_config_resources", "topic")
    with pytest.raises(ItemsFailed) as caught:
        call("alter_configs", {resource: {"retention.ms": "soon"}})
    assert caught.value.only(InvalidConfig)


def test_brokers(call: Call, topic: str) -> None:
    cluster = call("describe_cluster")
    node_id = next(iter(cluster.brokers))
    [log_dir] = call("describe_log_dirs", [node_id], [(topic, 0)])[node_id]
    assert [(replica.topic, replica.partition) for replica in log_dir.replicas] == [(topic, 0)]
    assert call("describe_configs", [("broker", str(node_id))])[ConfigResource("broker", str(node_id))]
    assert "metadata.version" in call("describe_features").finalized
    assert call("elect_leaders", [(topic, 0)]) == {TopicPartition(topic, 0): False}
    with pytest.raises(UsageError):
        call("describe_log_dirs", [node_id + 99])


def test_groups(call: Call, unique: Callable[[str], str], topic: str) -> None:
    group = unique("group")
    call("alter_group_offsets", group, {(topic, 0): 4})
    assert group in {listing.group_id for listing in call("list_groups")}
    assert call("describe_groups", group)[group].members == ()
    assert call("list_group_offsets", group)[TopicPartition(topic, 0)].offset == 4
    call("delete_group_offsets", group, [(topic, 0)])
    assert call("list_group_offsets", group) == {}
    assert call("remove_members", group) == []
    call("alter_group_offsets", group, {(topic, 0): 4})
    call("delete_groups", group)
    with pytest.raises(ItemsFailed) as caught:
        call("describe_groups", group)
    assert caught.value.only(GroupIdNotFound)


def test_transactions(call: Call, unique: Callable[[str], str]) -> None:
    name = unique("id")
    assert call("list_transactions", states=["Ongoing"], pattern=name) == []
    with pytest.raises(ItemsFailed) as caught:
        call("describe_transactions", name)
    assert caught.value.only(TransactionalIdNotFound)
    with pytest.raises(UsageError):
        call("list_transactions", states=["Odd"])
