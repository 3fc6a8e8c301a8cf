"""Topics, their offsets and records, by both administrators."""

import warnings
from typing import Any

import pytest

from barnabas.client.admin.topics import CreatedTopic, NewTopic
from barnabas.errors import (
    ItemsFailed,
    KeysMove,
    TopicAlreadyExists,
    TopicNotFound,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from client.admin.conftest import write


def test_topics(admin: Any, name: str) -> None:
    made = admin.create_topics([NewTopic(name, partitions=3, configs={"retention.ms": "1000"}), f"{name}-b"])
    assert made[name] == CreatedTopic(name, 3, 1)
    assert {name, f"{name}-b"} <= {topic.name for topic in admin.list_topics()}
    assert sorted(admin.describe_topics(name)[name].partitions) == [0, 1, 2]
    admin.create_partitions({name: 5})
    assert len(admin.describe_topics([name])[name].partitions) == 5
    admin.delete_topics([name])
    with pytest.raises(ItemsFailed) as caught:
        admin.describe_topics([name, f"{name}-b"])
    assert list(caught.value.failed) == [name]
    assert caught.value.only(UnknownTopicOrPartition)
    assert f"{name}-b" in caught.value.succeeded
    assert f"describe_topics failed for 1 of 2: {name}: topic {name!r} does not exist" in str(caught.value)
    admin.delete_topics(f"{name}-b")  # a text is one name


def test_what_succeeded_is_told_beside_what_failed(admin: Any, name: str) -> None:
    admin.create_topics(name)
    with pytest.raises(ItemsFailed) as caught:
        admin.create_topics([name, f"{name}-new"])
    assert caught.value.only(TopicAlreadyExists)
    assert list(caught.value.succeeded) == [f"{name}-new"]
    assert caught.value.attempts[0].error.startswith("TOPIC_ALREADY_EXISTS")
    admin.create_topics(f"{name}-checked", validate_only=True)
    assert f"{name}-checked" not in {topic.name for topic in admin.list_topics()}


def test_records_and_offsets(admin: Any, broker: Broker, name: str) -> None:
    broker.create_topic(name)
    write(broker, name, b"a", b"b", b"c")
    where = TopicPartition(name, 0)
    assert admin.list_offsets({(name, 0): "latest"})[where].offset == 3
    assert admin.list_offsets({where: "max_timestamp"})[where].timestamp > 0
    assert admin.list_offsets({where: 0}, isolation="read_committed")[where].offset == 0
    assert admin.delete_records({where: 2}) == {where: 2}
    assert admin.list_offsets({where: "earliest"})[where].offset == 2
    with pytest.raises(ItemsFailed) as caught:
        admin.list_offsets({where: "latest", (name, 7): "latest", (f"{name}-no", 0): "latest"})
    assert caught.value.only(TopicNotFound)
    assert list(caught.value.succeeded) == [where]
    for wrong in ({where: "soon"}, {name: 1}):
        with pytest.raises(UsageError):
            admin.list_offsets(wrong)


def test_growing_a_topic_with_records_warns(admin: Any, broker: Broker, name: str) -> None:
    admin.create_topics(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        admin.create_partitions({name: 2})
    write(broker, name, b"a")
    with pytest.warns(KeysMove, match=name):
        admin.create_partitions({name: 3})
