"""`barnabas.Producer` against a broker of ours, with faults: what is written, once, in order, and what is told."""

import random
from typing import Any
from uuid import UUID

import pytest

import barnabas
from barnabas import TopicPartition
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import (
    InvalidRecord,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OperationTimedOut,
    TopicAuthorizationFailed,
    TopicNotFound,
    TransactionFailed,
)
from barnabas.records.compiled.bulk_rows import murmur2
from barnabas.records.record import Record
from barnabas.testing import Broker
from client.producer.batches import send_all
from client.producer.transactions.rig import Transacting
from simulation.producer import SimulatedProducer


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    broker.create_topic(name, partitions=3)
    return name


def producer(broker: Broker, **settings: Any) -> barnabas.Producer:
    return barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, **{"linger_ms": 0, **settings})


def numbers(broker: Broker, topic: str, partition: int) -> list[int]:
    return [int(record.value or b"-1") for record in broker.records(topic, partition)]


def test_keys_choose_partitions_as_java_does(broker: Broker, topic: str) -> None:
    with producer(broker) as sender:
        for number in range(300):
            sender.send(topic, b"%d" % number, b"key-%d" % (number % 10))
    for partition in range(3):
        records = broker.records(topic, partition)
        assert {(murmur2(record.key or b"") & 0x7FFFFFFF) % 3 for record in records} <= {partition}
        for key in {record.key for record in records}:
            of_key = [int(record.value or b"") for record in records if record.key == key]
            assert of_key == sorted(of_key)
            assert len(of_key) == 30


def test_everything_of_a_record_comes_back(broker: Broker, topic: str) -> None:
    headers = (("a", b"1"), ("b", None), ("a", b"2"))
    with producer(broker) as sender:
        placed = sender.send(topic, b"v", b"k", partition=2, timestamp=1234, headers=headers).result(60)
        assert placed == (topic, 2, 0, 1234)
        sender.send(topic, None, b"k", partition=2, timestamp=1235)
        sender.send(topic, b"", b"", partition=2, timestamp=1236)
    assert broker.records(topic, 2) == [
        Record(0, 1234, b"k", b"v", headers),
        Record(1, 1235, b"k", None),
        Record(2, 1236, b"", b""),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "0", "1"])
def test_compressions_and_acks(broker: Broker, topic: str, codec: str, acks: str) -> None:
    with producer(broker, compression_type=codec, acks=acks, batch_size=5_000) as sender:
        handles = [sender.send(topic, b"%d" % number, partition=1) for number in range(2_000)]
        sender.flush(60)
        offsets = [handle.result(60).offset for handle in handles]
        assert offsets == (list(range(2_000)) if acks != "0" else [-1] * 2_000)
        assert sender.metrics()["requests"] > 3
    broker.wait_for(lambda: broker.end_offsets(topic)[1] == 2_000)
    assert numbers(broker, topic, 1) == list(range(2_000))


@pytest.mark.parametrize("after", [False, True])
def test_lost_answers_neither_lose_nor_double(broker: Broker, topic: str, after: bool) -> None:
    rules = [broker.faults.disconnect("Produce", after=after) for _ in range(3)]
    with producer(broker, batch_size=1_000) as sender:
        for number in range(3_000):
            sender.send(topic, b"%d" % number, partition=number % 3)
    assert all(rule.hits for rule in rules)
    for partition in range(3):
        assert numbers(broker, topic, partition) == list(range(partition, 3_000, 3))


def test_order_survives_retriable_errors(broker: Broker, topic: str) -> None:
    rules = [broker.faults.error("Produce", error) for error in (NotLeaderOrFollower, NotEnoughReplicas)]
    with producer(broker, batch_size=1_000) as sender:
        for number in range(2_000):
            sender.send(topic, b"%d" % number, partition=0)
    assert all(rule.hits == 1 for rule in rules)
    assert numbers(broker, topic, 0) == list(range(2_000))


def test_a_restart_in_the_middle_loses_nothing(name: str) -> None:
    with Broker() as own:
        own.create_topic(name)
        with producer(own, batch_size=500) as sender:
            for number in range(1_000):
                if number == 500:
                    own.restart()
                sender.send(name, b"%d" % number)
        assert numbers(own, name, 0) == list(range(1_000))


@pytest.mark.parametrize("idempotent", [False, True])
def test_batches_above_the_topics_limit_are_halved_until_they_fit(broker: Broker, name: str, idempotent: bool) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, 1, -1, {"max.message.bytes": "1000"}))
    with producer(broker, enable_idempotence=idempotent, batch_size=20_000, linger_ms=100) as sender:
        for number in range(2_000):
            sender.send(name, b"%d" % number)
    found = numbers(broker, name, 0)
    assert found == list(range(2_000)) if idempotent else sorted(found) == list(range(2_000))


def test_a_record_above_the_topics_limit_fails_alone(broker: Broker, name: str) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, 1, -1, {"max.message.bytes": "1000"}))
    source = random.Random(1)
    with producer(broker, batch_size=200) as sender:
        handles = [sender.send(name, b"%d" % n if n != 10 else source.randbytes(2000)) for n in range(20)]
        errors = [handle.exception(60) for handle in handles]
    assert [number for number, error in enumerate(errors) if error is not None] == [10]
    assert isinstance(errors[10], MessageTooLarge)
    assert numbers(broker, name, 0) == [number for number in range(20) if number != 10]


def test_reasons_of_refused_records_are_told(broker: Broker, name: str) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, 1, -1, {"cleanup.policy": "compact"}))
    with producer(broker) as sender, pytest.raises(InvalidRecord, match=f"{name}-0: .*key"):
        sender.send(name, b"without a key").result(60)


def test_what_cannot_pass_fails_once(broker: Broker, topic: str) -> None:
    broker.faults.error("Produce", TopicAuthorizationFailed)
    with producer(broker) as sender:
        with pytest.raises(TopicAuthorizationFailed, match=topic):
            sender.send(topic, b"v", partition=0).result(60)
        assert sender.send(topic, b"w", partition=0).result(60) == (topic, 0, 0, sender_time(broker, topic))


def sender_time(broker: Broker, topic: str) -> int:
    return broker.records(topic, 0)[0].timestamp


def test_retries_end_with_the_delivery_timeout(broker: Broker, topic: str) -> None:
    broker.faults.error("Produce", NotLeaderOrFollower, times=None)
    settings = {"delivery_timeout_ms": 4000, "request_timeout_ms": 4000}
    with producer(broker, **settings) as sender, pytest.raises(OperationTimedOut, match="NOT_LEADER") as caught:
        sender.send(topic, b"v").result(60)
    assert caught.value.attempts
    assert all(attempt.address.startswith(topic) for attempt in caught.value.attempts)


def test_topics_come_into_being_where_the_broker_makes_them(broker: Broker, name: str) -> None:
    with producer(broker) as sender:
        assert sender.send(name, b"v").result(60).offset == 0
        assert sender.partitions_for(name)[0].leader == 1
    assert TopicPartition(name, 0) in {TopicPartition(name, p) for p in range(len(broker.end_offsets(name)))}


# --- a topic that is created again, on the simulated cluster ----------------------------------------------------------


def create_again(producing: SimulatedProducer, *, partitions: int) -> None:
    cluster = producing.cluster
    cluster.topic_ids["t"] = UUID(int=7)
    cluster.topics["t"] = dict.fromkeys(range(partitions), 1)
    cluster.logs.clear()


def refresh(producing: SimulatedProducer) -> None:
    producing.cluster.result(producing.cluster.network_client.refresh_metadata())


@pytest.mark.parametrize("partitioner", [None, "round_robin"])
def test_a_topic_created_again_with_fewer_partitions_is_produced_to(partitioner: str | None) -> None:
    producing = SimulatedProducer(partitions=5, partitioner_class=partitioner, batch_size=100)
    for partition in range(5):
        producing.send(b"before", partition=partition).result()
    create_again(producing, partitions=2)
    refresh(producing)
    began = producing.cluster.now
    handles = [producing.send(b"keyed", key=b"%d" % number) for number in range(20)]
    handles += [producing.send(b"keyless") for _ in range(20)]
    assert {handle.result().partition for handle in handles} == {0, 1}
    assert producing.cluster.now - began < 2
    assert producing.send(b"refused", partition=2) is None
    producing.cluster.topics["t"] = dict.fromkeys(range(7), 1)
    refresh(producing)
    assert producing.send(b"grown", partition=6).result().offset == 0


@pytest.mark.parametrize("idempotent", [False, True])
def test_records_for_partitions_that_a_topic_has_lost_fail_at_once(idempotent: bool) -> None:
    producing = SimulatedProducer(partitions=3, enable_idempotence=idempotent, linger_ms=60_000)
    cluster = producing.cluster
    producing.kafka_producer.accumulator.flushing += 1
    producing.send(b"before", partition=2).result()
    producing.kafka_producer.accumulator.flushing -= 1
    (in_flight,) = send_all(producing, 1, partition=2)
    cluster.turn()
    kept, still_open = (producing.send(b"open", partition=partition) for partition in (0, 2))
    create_again(producing, partitions=1)
    began = cluster.now
    refresh(producing)
    for handle in (in_flight, still_open):
        error = handle.exception()
        assert isinstance(error, TopicNotFound)
        assert str(error) == "topic 't' has partitions 0 to 0, there is no 2"
    assert cluster.now - began < 2
    assert kept.result().offset == 0
    assert producing.kafka_producer.appender.used_bytes == 0


@pytest.mark.parametrize("version", [0, 2])
def test_a_partition_that_a_topic_has_lost_fails_the_transaction(version: int) -> None:
    producing = Transacting(version, partitions=3, linger_ms=60_000)
    cluster = producing.cluster
    producing.init()
    producing.transactions.begin()
    producing.send(b"before", partition=0)
    producing.commit()
    producing.transactions.begin()
    others = [producing.send(b"a", partition=0)]
    lost = producing.send(b"a", partition=2)
    others.append(producing.send(b"a", partition=1))
    create_again(producing, partitions=2)
    cluster.network_client.refresh_metadata()
    cluster.advance(1)
    cluster.turn()
    (link,) = (link for link in cluster.links.values() if link.pending)
    cluster.advance(60)  # all have lingered when the response comes
    cluster.answer(link)
    assert isinstance(lost.exception(), TopicNotFound)
    assert all(isinstance(handle.exception(), TransactionFailed) for handle in others)
    producing.abort()
    producing.transactions.begin()
    assert producing.send(b"b", partition=0) is not None
    producing.commit()
    assert producing.seen() == [b"b"]


def test_a_response_with_fewer_partitions_of_the_same_topic_is_an_old_one() -> None:
    producing = SimulatedProducer(partitions=3)
    cluster, leaders = producing.cluster, dict(producing.cluster.topics["t"])
    del cluster.topics["t"][2]
    refresh(producing)
    handle = producing.send(b"a", partition=2)
    producing.run(seconds=1)
    assert not handle.done()
    cluster.topics["t"] = leaders
    assert handle.result().offset == 0
