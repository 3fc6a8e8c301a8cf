"""DeleteTopics: by name, by id, twice in a request, and where deletion is disabled."""

from pathlib import Path
from uuid import UUID

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import (
    InvalidRequest,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.admin_rig import ask, create, running_broker
from broker.admin_rig import broker as broker

NOBODY = UUID(int=7)


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
