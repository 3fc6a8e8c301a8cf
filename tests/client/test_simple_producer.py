import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import OperationTimedOut
from barnabas.client.partitioner import murmur2_partition
from barnabas.client.simple_consumer import SimpleConsumer
from barnabas.client.simple_producer import Delivery, SimpleProducer
from barnabas.errors import (
    InvalidRecord,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UsageError,
)
from barnabas.records.record import Record
from barnabas.testing import Broker
from barnabas.types import TopicPartition


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topics([NewTopic(name, 3)])
    return name


def records_of(cluster: Cluster, topic: str) -> dict[int, list[Record]]:
    """Everything in a topic, by partition."""
    admin = Admin(cluster)
    marks = admin.watermarks([TopicPartition(topic, number) for number in cluster.topic(topic).partitions])
    found: dict[int, list[Record]] = {tp.partition: [] for tp in marks}
    positions = {tp: low for tp, (low, high) in marks.items() if high > low}
    with SimpleConsumer(cluster, positions) as consumer:
        while any(consumer.positions[tp] < marks[tp][1] for tp in positions):
            for fetched in consumer.poll():
                found[fetched.partition.partition] += fetched.records()
    return found


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def test_keys_choose_partitions_as_java_does(cluster: Cluster, topic: str) -> None:
    with SimpleProducer(cluster) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, key=b"key-%d" % (number % 10))
    for partition, records in records_of(cluster, topic).items():
        assert {murmur2_partition(record.key or b"", 3) for record in records} <= {partition}
        for key in {record.key for record in records}:
            of_key = numbers([record for record in records if record.key == key])
            assert of_key == sorted(of_key)
            assert len(of_key) == 30


def test_everything_of_a_record_comes_back(cluster: Cluster, topic: str) -> None:
    headers = (("a", b"1"), ("b", None), ("a", b"2"))
    with SimpleProducer(cluster) as producer:
        assert producer.send(topic, b"v", key=b"k", headers=headers, timestamp=1234, partition=2) == (topic, 2)
        producer.send(topic, None, key=b"k", partition=2, timestamp=1235)
    assert records_of(cluster, topic)[2] == [Record(0, 1234, b"k", b"v", headers), Record(1, 1235, b"k", None)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_compressions_and_acks(cluster: Cluster, topic: str, codec: str, acks: int) -> None:
    deliveries: list[Delivery] = []
    with SimpleProducer(
        cluster, compression=codec, acks=acks, batch_bytes=5_000, on_delivery=deliveries.append
    ) as producer:
        for number in range(2_000):
            producer.send(topic, b"%d" % number, partition=1)
    assert sum(delivery.record_count for delivery in deliveries) == 2_000
    assert len(deliveries) > 3
    if acks:
        assert [d.base_offset for d in deliveries] == sorted(d.base_offset for d in deliveries)
        assert numbers(records_of(cluster, topic)[1]) == list(range(2_000))
    else:
        assert {delivery.base_offset for delivery in deliveries} == {-1}


@pytest.mark.parametrize("after", [False, True])
def test_lost_answers_neither_lose_nor_double_what_is_idempotent(
    broker: Broker, cluster: Cluster, topic: str, after: bool
) -> None:
    rules = [broker.faults.disconnect("Produce", after=after) for _ in range(3)]
    with SimpleProducer(cluster, idempotent=True, batch_bytes=1_000) as producer:
        for number in range(3_000):
            producer.send(topic, b"%d" % number, partition=number % 3)
    assert all(rule.hits for rule in rules)
    for partition, records in records_of(cluster, topic).items():
        assert numbers(records) == list(range(partition, 3_000, 3))


def test_order_survives_retriable_errors(broker: Broker, cluster: Cluster, topic: str) -> None:
    rules = [broker.faults.error("Produce", error) for error in (NotLeaderOrFollower, NotEnoughReplicas)]
    with SimpleProducer(cluster, batch_bytes=1_000) as producer:
        for number in range(2_000):
            producer.send(topic, b"%d" % number, partition=0)
    assert all(rule.hits == 1 for rule in rules)
    assert numbers(records_of(cluster, topic)[0]) == list(range(2_000))


def test_a_restart_in_the_middle_loses_nothing(name: str) -> None:
    with Broker() as own, Cluster(own.bootstrap_servers, timeout_s=10) as cluster:
        Admin(cluster).create_topics([NewTopic(name, 1)])
        with SimpleProducer(cluster, idempotent=True, batch_bytes=500) as producer:
            for number in range(1_000):
                if number == 500:
                    own.restart()
                producer.send(name, b"%d" % number)
        assert numbers(records_of(cluster, name)[0]) == list(range(1_000))


@pytest.mark.parametrize("idempotent", [False, True])
def test_batches_above_the_topics_limit_are_halved_until_they_fit(
    cluster: Cluster, name: str, idempotent: bool
) -> None:
    Admin(cluster).create_topics([NewTopic(name, 1, -1, {"max.message.bytes": "1000"})])
    with SimpleProducer(cluster, idempotent=idempotent, batch_bytes=20_000) as producer:
        for number in range(2_000):
            producer.send(name, b"%d" % number)
    assert numbers(records_of(cluster, name)[0]) == list(range(2_000))


def test_a_record_above_the_topics_limit_fails_alone(cluster: Cluster, name: str) -> None:
    Admin(cluster).create_topics([NewTopic(name, 1, -1, {"max.message.bytes": "1000"})])
    failed: list[Delivery] = []
    with SimpleProducer(
        cluster, idempotent=True, batch_bytes=200, on_delivery=lambda d: failed.append(d) if d.error else None
    ) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number if number != 10 else b"10" * 1000)
    assert [type(delivery.error) for delivery in failed] == [MessageTooLarge]
    assert numbers(records_of(cluster, name)[0]) == [number for number in range(20) if number != 10]


def test_reasons_of_refused_records_are_told(cluster: Cluster, name: str) -> None:
    Admin(cluster).create_topics([NewTopic(name, 1, -1, {"cleanup.policy": "compact"})])
    producer = SimpleProducer(cluster)
    producer.send(name, b"without a key")
    with pytest.raises(InvalidRecord, match=f"{name}-0: .*key"):
        producer.close()


def test_what_cannot_pass_is_raised_by_flush(broker: Broker, cluster: Cluster, topic: str) -> None:
    broker.faults.error("Produce", TopicAuthorizationFailed)
    producer = SimpleProducer(cluster)
    producer.send(topic, b"v")
    with pytest.raises(TopicAuthorizationFailed):
        producer.flush()
    producer.send(topic, b"w")
    producer.close()


def test_retries_end_with_the_delivery_timeout(broker: Broker, cluster: Cluster, topic: str) -> None:
    broker.faults.error("Produce", NotLeaderOrFollower, times=None)
    producer = SimpleProducer(cluster, delivery_timeout_s=0.3)
    producer.send(topic, b"v")
    with pytest.raises((NotLeaderOrFollower, OperationTimedOut)):
        producer.close()


def test_wrong_settings_and_unknown_topics_name_the_way_out(cluster: Cluster, name: str) -> None:
    with pytest.raises(UsageError, match="acks 2"):
        SimpleProducer(cluster, acks=2)
    with pytest.raises(UsageError, match="compression 'lz5'"):
        SimpleProducer(cluster, compression="lz5")
    with pytest.raises(UsageError, match="acks=all"):
        SimpleProducer(cluster, acks=1, idempotent=True)
    with pytest.raises(UsageError, match="create it first"):
        SimpleProducer(cluster).send(name, b"v")
    with SimpleProducer(cluster, create_topics=True) as producer:
        producer.send(name, b"v")
    assert sum(len(records) for records in records_of(cluster, name).values()) == 1
