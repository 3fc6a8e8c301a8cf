"""CreateMissingTopics: the controller creates what clients of other brokers use."""

import pytest

from barnabas.errors import InvalidTopic, NotController, PolicyViolation, TopicAlreadyExists
from barnabas.protocol.peer_messages.create_missing_topics import CreateMissingTopicsRequest
from broker.handlers.peers.conftest import image_of
from broker.peers.conftest import Peer
from broker.wire import Wire, on_controller


def test_topics_get_the_defaults_of_the_cluster(peer: Peer, wire: Wire) -> None:
    answer = wire.ask(CreateMissingTopicsRequest(names=["a", "__consumer_offsets", "b c"]), 0)
    assert answer.error_code == 0
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "a": 0,
        "__consumer_offsets": 0,
        "b c": InvalidTopic.code,
    }
    assert "b c" in next(topic.error_message for topic in answer.topics if topic.error_code)
    image = image_of(peer)
    assert len(image.topics["a"].partitions) == 1
    assert image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"
    again = wire.ask(CreateMissingTopicsRequest(names=["a"]), 0)
    assert [topic.error_code for topic in again.topics] == [TopicAlreadyExists.code]


def test_nothing_is_wanted(wire: Wire) -> None:
    answer = wire.ask(CreateMissingTopicsRequest(names=[]), 0)
    assert (answer.error_code, list(answer.topics)) == (0, [])


def test_a_request_has_a_bound(peer: Peer, wire: Wire) -> None:
    names = [f"t{number}" for number in range(10_001)]
    assert wire.ask(CreateMissingTopicsRequest(names=names), 0).error_code == PolicyViolation.code
    assert image_of(peer).topics == {}


def test_another_broker_is_the_controller(peer: Peer, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = on_controller(peer.broker, lambda controller: controller)
    monkeypatch.setattr(controller, "_controller_epoch", None)
    answer = wire.ask(CreateMissingTopicsRequest(names=["a"]), 0)
    assert (answer.error_code, list(answer.topics)) == (NotController.code, [])
