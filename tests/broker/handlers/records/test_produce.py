"""Produce over the wire: every version, every refusal, acks, durability."""

import itertools
import time
import uuid
from typing import Any

import pytest

from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing import Broker
from barnabas.types import BrokerId
from broker import followers
from broker.followers import FOLLOWER, add_follower, remove_follower
from broker.sent_requests import T0, append, batch, fetch, produce, values
from broker.wire import Wire, name_of, on_loop, server_of

VERSIONS = range(SERVED[ApiKey.PRODUCE].first, SERVED[ApiKey.PRODUCE].last + 1)


def only(answer: Any) -> Any:
    ((partition,),) = [topic.partition_responses for topic in answer.responses]
    return partition


@pytest.fixture(autouse=True)
def topic(broker: Broker) -> None:
    broker.create_topic("t", partitions=3)


@pytest.mark.parametrize(("version", "acks"), list(itertools.product(VERSIONS, (1, -1))))
def test_batches_are_appended_and_answered_in_order(broker: Broker, wire: Wire, version: int, acks: int) -> None:
    for expected in (0, 2, 4):
        answer = wire.ask(produce(broker, {1: batch(b"a", b"b")}, version, acks=acks), version)
        result = only(answer)
        assert (result.index, result.error_code, result.base_offset) == (1, 0, expected)
        assert result.log_append_time_ms == -1
        assert result.log_start_offset == (0 if version >= 5 else -1)
        assert answer.throttle_time_ms == 0
        if version < 13:
            assert answer.responses[0].name == "t"
    assert broker.end_offsets("t") == [0, 6, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_fail_alone(broker: Broker, wire: Wire, version: int) -> None:
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    sent = {0: batch(b"good"), 1: bytes(broken), 2: None, 9: batch(b"nowhere")}
    answer = wire.ask(produce(broker, sent, version), version)
    results = {result.index: result for result in answer.responses[0].partition_responses}
    assert [name_of(results[index].error_code) for index in (0, 1, 2, 9)] == [
        "",
        "CorruptMessage",
        "InvalidRecord",
        "UnknownTopicOrPartition",
    ]
    assert all(results[index].base_offset == -1 for index in (1, 2, 9))
    if version >= 8:
        assert results[1].error_message
        assert not results[0].error_message
    assert broker.end_offsets("t") == [1, 0, 0]


def test_several_topics_in_one_request(broker: Broker, wire: Wire) -> None:
    broker.create_topic("u")
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch(b"x"))])
        for name in ("t", "gone", "u")
    ]
    answer = wire.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
    codes = {topic.name: name_of(topic.partition_responses[0].error_code) for topic in answer.responses}
    assert codes == {"t": "", "gone": "UnknownTopicOrPartition", "u": ""}


def test_a_topic_id_that_nobody_has(broker: Broker, wire: Wire) -> None:
    strange = uuid.uuid4()
    answer = wire.ask(produce(broker, {0: batch(b"x")}, 13, by_id=strange), 13)
    assert answer.responses[0].topic_id == strange
    assert name_of(only(answer).error_code) == "UnknownTopicId"


def test_a_topic_that_was_made_anew_has_another_id(broker: Broker, wire: Wire) -> None:
    request = produce(broker, {0: batch(b"x")}, 13)
    broker.delete_topic("t")
    broker.create_topic("t")
    assert name_of(only(wire.ask(request, 13)).error_code) == "UnknownTopicId"


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_mean_nothing(broker: Broker, wire: Wire, acks: int) -> None:
    result = only(wire.ask(produce(broker, {0: batch(b"x")}, 9, acks=acks), 9))
    assert name_of(result.error_code) == "InvalidRequiredAcks"
    assert broker.end_offsets("t")[0] == 0


def test_acks_0_gets_no_answer(broker: Broker, wire: Wire) -> None:
    wire.socket.sendall(acks_0(broker, batch(b"1")))
    wire.socket.sendall(acks_0(broker, batch(b"2")))
    assert only(wire.ask(produce(broker, {0: batch(b"3")}, 9), 9)).base_offset == 2
    assert values(wire.ask(fetch(broker, {0: 0}), 12).responses[0].partitions[0].records) == [b"1", b"2", b"3"]


def acks_0(broker: Broker, records: bytes, topic: str = "t") -> bytes:
    from broker.wire import frame

    return frame(produce(broker, {0: records}, 9, topic=topic, acks=0), 9)


def test_an_error_under_acks_0_closes_the_connection(broker: Broker, wire: Wire) -> None:
    wire.socket.sendall(acks_0(broker, batch(b"1"), topic="gone"))
    assert wire.is_closed()


def test_too_few_replicas_for_acks_all(broker: Broker, wire: Wire) -> None:
    broker.create_topic("careful", configs={"min.insync.replicas": "2"})
    request = produce(broker, {0: batch(b"x")}, 9, topic="careful", acks=-1)
    assert only(wire.ask(request, 9)).error_code == 0, "more than there are replicas is not asked for"

    def lose_a_follower() -> None:
        partition = server_of(broker).replica_manager.leader_of("careful", 0)
        add_follower(partition)
        remove_follower(partition)

    on_loop(broker, lose_a_follower)
    assert name_of(only(wire.ask(request, 9)).error_code) == "NotEnoughReplicas"
    taken = only(wire.ask(produce(broker, {0: batch(b"x")}, 9, topic="careful", acks=1), 9))
    assert (taken.error_code, taken.base_offset) == (0, 1)


def test_record_errors_name_the_records(broker: Broker, wire: Wire) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    request = produce(broker, {0: batch(b"a", b"b", key=None)}, 9, topic="compacted")
    result = only(wire.ask(request, 9))
    assert name_of(result.error_code) == "InvalidRecord"
    assert [error.batch_index for error in result.record_errors] == [0, 1]
    assert all("key" in error.batch_index_error_message for error in result.record_errors)
    assert result.error_message
    assert only(wire.ask(request, 7)).error_code == result.error_code


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_batch_that_is_too_large(broker: Broker, wire: Wire, version: int) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "100"})
    result = only(wire.ask(produce(broker, {0: batch(b"x" * 200)}, version, topic="small"), version))
    assert name_of(result.error_code) == "MessageTooLarge"


def test_zstd_needs_version_7(broker: Broker, wire: Wire) -> None:
    zstd = batch(b"x" * 100, compression="zstd")
    assert name_of(only(wire.ask(produce(broker, {0: zstd}, 6), 6)).error_code) == "UnsupportedCompressionType"
    assert only(wire.ask(produce(broker, {0: zstd}, 7), 7)).error_code == 0


def test_log_append_time_is_told(broker: Broker, wire: Wire) -> None:
    broker.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    result = only(wire.ask(produce(broker, {0: batch(b"x")}, 9, topic="stamped"), 9))
    assert before <= result.log_append_time_ms <= before + 60_000
    (record,) = broker.records("stamped")
    assert record.timestamp == result.log_append_time_ms


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_needs_its_name(broker: Broker, wire: Wire, version: int) -> None:
    """One such batch has the whole request refused, as in Kafka."""
    records = batch(b"x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    for sent in ({0: records}, {0: batch(b"y"), 1: records}):
        answer = wire.ask(produce(broker, sent, version), version)
        refused = {name_of(result.error_code) for result in answer.responses[0].partition_responses}
        assert refused == {"TransactionalIdAuthorizationFailed"}
    assert broker.end_offsets("t") == [0, 0, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_does_not_make_a_transaction(broker: Broker, wire: Wire, version: int) -> None:
    name = "n" * 130 if version % 2 else "mine"
    for expected in range(2):
        answer = wire.ask(produce(broker, {0: batch(b"x")}, version, transactional_id=name), version)
        assert (only(answer).error_code, only(answer).base_offset) == (0, expected)


def test_an_idempotent_producer(broker: Broker, wire: Wire) -> None:
    def send(sequence: int, count: int = 1, *, epoch: int = 0) -> tuple[str, int]:
        records = batch(*[b"x"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        result = only(wire.ask(produce(broker, {0: records}, 9, acks=-1), 9))
        return name_of(result.error_code), result.base_offset

    assert send(0) == ("", 0)
    assert send(1, 2) == ("", 1)
    assert send(3) == ("", 3)
    assert send(1, 2) == ("", 1), "a duplicate is answered with its first offset"
    assert send(5)[0] == "OutOfOrderSequenceNumber"
    assert send(0, epoch=1) == ("", 4)
    assert send(4)[0] == "InvalidProducerEpoch"
    assert broker.end_offsets("t")[0] == 5


@pytest.mark.parametrize("together", [False, True], ids=["one partition a request", "several"])
def test_a_batch_behind_one_that_came_before_this_broker_led(broker: Broker, wire: Wire, together: bool) -> None:
    def send(sequence: int) -> str:
        records = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)
        others = {1: batch(b"y")} if together else {}
        answer = wire.ask(produce(broker, {0: records, **others}, 9, acks=-1), 9)
        return name_of(answer.responses[0].partition_responses[0].error_code)

    def elect(leader: BrokerId) -> None:
        on_loop(broker, lambda: followers.elect(partition, leader))

    partition = server_of(broker).replica_manager.leader_of("t", 0)
    me = partition.leader_id
    assert send(0) == ""
    elect(FOLLOWER)
    assert send(1) == "NotLeaderOrFollower"
    elect(me)
    assert [send(2), send(3)] == ["NotEnoughReplicas"] * 2
    assert [send(1), send(2), send(3)] == [""] * 3
    assert send(5) == "OutOfOrderSequenceNumber"


def test_what_is_no_batch_is_refused_where_nobody_leads(broker: Broker, wire: Wire) -> None:
    partition = server_of(broker).replica_manager.leader_of("t", 0)
    on_loop(broker, lambda: followers.elect(partition, FOLLOWER))
    for records in (None, b"", b"x" * 100):
        result = only(wire.ask(produce(broker, {0: records}, 9), 9))
        assert name_of(result.error_code) == "NotLeaderOrFollower"


def test_one_request_with_the_same_partition_twice(broker: Broker, wire: Wire) -> None:
    answer = wire.ask(produce(broker, [(0, batch(b"a")), (0, batch(b"b"))], 9), 9)
    results = answer.responses[0].partition_responses
    assert [(result.error_code, result.base_offset) for result in results] == [(0, 0), (0, 1)]


def test_a_stamp_from_the_future(broker: Broker, wire: Wire) -> None:
    late = int(time.time() * 1000) + 2 * 3_600_000
    result = only(wire.ask(produce(broker, {0: batch(b"x", timestamp=late)}, 9), 9))
    assert name_of(result.error_code) == "InvalidTimestamp"
    assert only(wire.ask(produce(broker, {0: batch(b"x", timestamp=T0)}, 9), 9)).error_code == 0


def test_a_request_without_topics(wire: Wire) -> None:
    assert list(wire.ask(ProduceRequest(acks=1, timeout_ms=0), 9).responses) == []


def test_nobody_writes_what_a_coordinator_would_read_back(broker: Broker, wire: Wire) -> None:
    broker.create_topic("__consumer_offsets")
    answer = wire.ask(produce(broker, {0: batch(b"x")}, 12, topic="__consumer_offsets"), 12)
    assert name_of(answer.responses[0].partition_responses[0].error_code) == "InvalidTopic"
    assert broker.end_offsets("__consumer_offsets")[0] == 0


def test_a_long_name_and_a_partition_number_that_looks_like_a_size(broker: Broker, wire: Wire) -> None:
    name = "n" * 200
    broker.create_topic(name, 100)
    for partition in range(70, 100):
        for size in range(30):
            assert append(wire, name, partition, b"v" * size) == 0, (partition, size)


def test_no_answer_to_acks_0_even_when_the_whole_request_is_refused(broker: Broker, wire: Wire) -> None:
    records = batch(b"x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    wire.send(produce(broker, {0: records}, 8, acks=0), 8)
    assert wire.is_closed()
