"""Faults on request, as a real client and a raw connection meet them."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.errors import (
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    RebalanceInProgress,
    TopicAuthorizationFailed,
    UsageError,
)
from barnabas.protocol.apis import SERVED, ApiKey, message_classes
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.testing import Broker
from barnabas.testing.faults import error_response
from broker.sent_requests import batch, fetch, produce
from broker.wire import Wire

confluent = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def module_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(module_broker: Broker) -> Iterator[Broker]:
    module_broker.reset()
    module_broker.create_topic("t")
    yield module_broker
    module_broker.faults.clear()


def producer(broker: Broker, **settings: Any) -> Any:
    return confluent.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "linger.ms": 0,
            "log_level": 0,
            **settings,
        }
    )


def consumer(broker: Broker, **settings: Any) -> Any:
    return confluent.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            **settings,
        }
    )


def deliver(client: Any, value: bytes = b"x") -> Any:
    """The error of the delivery, None where it went well."""
    outcome: list[Any] = []
    client.produce("t", value, callback=lambda error, _: outcome.append(error))
    assert client.flush(60) == 0
    return outcome[0]


def read_one(client: Any) -> bytes:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = client.poll(0.1)
        if message is not None and message.error() is None:
            return bytes(message.value())
    raise AssertionError("nothing came")


# --- rules that are refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda faults: faults.error("PRODUCED", NotLeaderOrFollower), "'PRODUCED' is not an API .* PRODUCE, FETCH"),
        (lambda faults: faults.error("PRODUCE", ValueError), "ValueError.* is not an error that a broker answers with"),
        (lambda faults: faults.error("PRODUCE", NotLeaderOrFollower()), "is not an error .* give a class"),
        (lambda faults: faults.error("PRODUCE", NotLeaderOrFollower, times=0), "times=0: a fault meets 1 request"),
        (lambda faults: faults.delay("PRODUCE", -1), "a delay is a number of seconds, 0 or more, not -1"),
        (lambda faults: faults.delay("PRODUCE", float("nan")), "a delay is a number of seconds"),
        (lambda faults: faults.disconnect("PRODUCE", client_id=7), "client_id=7: a client id is text"),
    ],
)
def test_wrong_faults_are_refused(broker: Broker, wrong: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        wrong(broker.faults)


def test_faults_of_a_broker_that_is_stopped_hold_from_its_start() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with broker.down():
            fault = broker.faults.error("PRODUCE", NotLeaderOrFollower)
        assert deliver(producer(broker)) is None
        assert fault.hits == 1


# --- what a client does about them ----------------------------------------------------------------------------------


def test_a_producer_tries_again_after_an_error_that_passes(broker: Broker) -> None:
    fault = broker.faults.error("PRODUCE", NotLeaderOrFollower, times=2)
    assert deliver(producer(broker)) is None
    assert fault.hits == 2
    assert broker.end_offsets("t") == [1]


def test_a_producer_gives_up_at_an_error_that_stays(broker: Broker) -> None:
    broker.faults.error("produce", TopicAuthorizationFailed, times=None)
    error = deliver(producer(broker))
    assert error.code() == confluent.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.end_offsets("t") == [0]


def test_a_connection_cut_before_a_produce_had_its_effect(broker: Broker) -> None:
    fault = broker.faults.disconnect("PRODUCE")
    assert deliver(producer(broker)) is None
    assert fault.hits == 1
    assert broker.end_offsets("t") == [1]


@pytest.mark.parametrize(("idempotent", "copies"), [(False, 2), (True, 1)])
def test_a_connection_cut_after_a_produce_had_its_effect(broker: Broker, idempotent: bool, copies: int) -> None:
    """The response is lost, the record is not; with idempotence the retry does not repeat it."""
    broker.faults.disconnect("PRODUCE", after=True)
    assert deliver(producer(broker, **{"enable.idempotence": idempotent})) is None
    assert broker.end_offsets("t") == [copies]


def test_a_produce_that_takes_its_time(broker: Broker) -> None:
    broker.faults.delay("PRODUCE", 0.3)
    began = time.monotonic()
    assert deliver(producer(broker)) is None
    assert time.monotonic() - began >= 0.3
    impatient = producer(broker, **{"message.timeout.ms": 300, "socket.timeout.ms": 300})
    broker.faults.delay("PRODUCE", 60.0, times=None)
    assert deliver(impatient).code() == confluent.KafkaError._MSG_TIMED_OUT


APIS = ["FETCH", "METADATA", "JOIN_GROUP", "SYNC_GROUP", "FIND_COORDINATOR", "LIST_OFFSETS"]
FAULTS = [(api, kind) for api in APIS for kind in ("error", "delay", "disconnect", "after")]


@pytest.mark.parametrize(("api", "kind"), FAULTS)
def test_a_consumer_gets_over_it(broker: Broker, api: str, kind: str) -> None:
    errors = {
        "FETCH": NotLeaderOrFollower,
        "METADATA": LeaderNotAvailable,
        "JOIN_GROUP": CoordinatorNotAvailable,
        "SYNC_GROUP": RebalanceInProgress,
        "FIND_COORDINATOR": CoordinatorNotAvailable,
        "LIST_OFFSETS": NotLeaderOrFollower,
    }
    assert deliver(producer(broker), b"found") is None
    if kind == "error":
        fault = broker.faults.error(api, errors[api])
    elif kind == "delay":
        fault = broker.faults.delay(api, 0.1)
    else:
        fault = broker.faults.disconnect(api, after=kind == "after")
    client = consumer(broker)
    client.subscribe(["t"])
    assert read_one(client) == b"found"
    assert fault.hits == 1
    client.close()


def test_a_commit_that_fails_is_told(broker: Broker) -> None:
    client = consumer(broker)
    offsets = [confluent.TopicPartition("t", 0, 1)]
    broker.faults.error("OFFSET_COMMIT", TopicAuthorizationFailed)
    with pytest.raises(confluent.KafkaException) as raised:
        client.commit(offsets=offsets, asynchronous=False)
    assert raised.value.args[0].code() == confluent.KafkaError.TOPIC_AUTHORIZATION_FAILED
    client.commit(offsets=offsets, asynchronous=False)
    assert broker.committed("g") == {("t", 0): 1}
    client.close()


# --- rules ----------------------------------------------------------------------------------------------------------


def is_well(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=[]), 12).brokers)


def test_rules_meet_one_client_only(broker: Broker) -> None:
    fault = broker.faults.disconnect("METADATA", client_id="somebody else", times=None)
    with Wire(broker) as wire:
        assert is_well(wire)
    assert fault.hits == 0
    broker.faults.disconnect("METADATA", client_id="test")
    with Wire(broker) as wire:
        wire.send(MetadataRequest(topics=[]), 12)
        assert wire.is_closed()


def test_rules_end_when_they_are_used_up_or_cleared(broker: Broker) -> None:
    with Wire(broker) as wire:
        fault = broker.faults.error(ApiKey.FETCH, NotLeaderOrFollower, times=2)
        codes = [wire.ask(fetch(broker, {0: 0}), 12).error_code for _ in range(3)]
        assert codes == [NotLeaderOrFollower.code, NotLeaderOrFollower.code, 0]
        assert (fault.hits, fault.remaining) == (2, 0)
        broker.faults.error("FETCH", NotLeaderOrFollower, times=None)
        broker.faults.clear()
        assert wire.ask(fetch(broker, {0: 0}), 12).error_code == 0


def test_a_delay_keeps_the_order_of_answers(broker: Broker) -> None:
    broker.faults.delay("PRODUCE", 0.1)
    with Wire(broker) as wire:
        wire.send(produce(broker, {0: batch(b"slow")}), 12)
        wire.send(produce(broker, {0: batch(b"quick")}), 12)
        results = [wire.receive().responses[0].partition_responses[0] for _ in range(2)]
        assert [result.base_offset for result in results] == [1, 0], "the second was handled first"


def test_an_error_for_a_produce_without_answers_cuts_the_connection(broker: Broker) -> None:
    from broker.wire import frame

    broker.faults.error("PRODUCE", NotLeaderOrFollower)
    with Wire(broker) as wire:
        wire.socket.sendall(frame(produce(broker, {0: batch(b"x")}, acks=0), 12))
        assert wire.is_closed()


def test_a_delayed_request_that_is_rubbish_ends_its_connection(broker: Broker) -> None:
    broker.faults.delay("METADATA", 0.01)
    with Wire(broker) as wire:
        wire.socket.sendall(b"\0\0\0\x0c\0\3\0\1\0\0\0\7\xff\xff\0\0")
        assert wire.is_closed()


def test_rules_outlive_a_restart(broker: Broker) -> None:
    fault = broker.faults.disconnect("METADATA")
    broker.restart()
    with Wire(broker) as wire:
        wire.send(MetadataRequest(topics=[]), 12)
        assert wire.is_closed()
    assert fault.hits == 1


def test_an_api_that_there_is_not(broker: Broker) -> None:
    with pytest.raises(UsageError, match="'PRODUCER' is not an API of this broker; there are PRODUCE, FETCH"):
        broker.faults.error("PRODUCER", NotLeaderOrFollower)


@pytest.mark.parametrize(("key", "version"), [(key, served.last) for key, served in SERVED.items()])
def test_every_api_has_an_error_answer_that_can_be_read(key: int, version: int) -> None:
    request_class, response_class = message_classes(key)
    answer = error_response(request_class(), response_class, 42)
    read, _ = decode(response_class, version, encode(answer, version))
    if any(field.name == "error_code" and field.first <= version <= field.last for field in response_class.SCHEMA):
        assert read.error_code == 42  # type: ignore[attr-defined]


def test_errors_stand_where_the_response_has_room_for_them(broker: Broker) -> None:
    broker.faults.error("OFFSET_FETCH", CoordinatorNotAvailable)
    broker.faults.error("FIND_COORDINATOR", CoordinatorNotAvailable)
    broker.faults.error("METADATA", NotLeaderOrFollower)
    with Wire(broker) as wire:
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b")]
        answer = wire.ask(OffsetFetchRequest(groups=groups), 8)
        assert [(group.group_id, group.error_code) for group in answer.groups] == [("a", 15), ("b", 15)]
        found = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]), 4)
        assert [(each.key, each.error_code) for each in found.coordinators] == [("a", 15), ("b", 15)]
        metadata = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        (topic,) = metadata.topics
        assert [f"{node.host}:{node.port}" for node in metadata.brokers] == [broker.bootstrap_servers]
        assert (topic.name, topic.error_code) == ("t", NotLeaderOrFollower.code)
