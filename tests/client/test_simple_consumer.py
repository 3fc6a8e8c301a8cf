import time

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.simple_consumer import SimpleConsumer
from barnabas.client.simple_producer import SimpleProducer
from barnabas.errors import NotLeaderOrFollower, OffsetOutOfRange, TopicAuthorizationFailed
from barnabas.testing import Broker
from barnabas.types import TopicPartition


@pytest.fixture
def where(cluster: Cluster, name: str) -> TopicPartition:
    """A partition with the numbers 0 to 999 in batches of some 50."""
    Admin(cluster).create_topics([NewTopic(name, 1)])
    with SimpleProducer(cluster, batch_bytes=2_000) as producer:
        for number in range(1_000):
            producer.send(name, b"%d" % number)
    return TopicPartition(name, 0)


def read(consumer: SimpleConsumer, where: TopicPartition, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        for fetched in consumer.poll(5.0):
            found += [int(record.value or b"") for record in fetched.records()]
    return found


@pytest.mark.parametrize("start", [0, 1, 37, 999])
def test_reading_begins_exactly_at_the_offset(cluster: Cluster, where: TopicPartition, start: int) -> None:
    with SimpleConsumer(cluster, {where: start}) as consumer:
        assert read(consumer, where, 1_000 - start) == list(range(start, 1_000))
        assert consumer.positions == {where: 1_000}
        assert consumer.lag() == {where: 0}


def test_small_answers_are_put_together(cluster: Cluster, where: TopicPartition) -> None:
    with SimpleConsumer(cluster, {where: 0}, partition_max_bytes=1, prefetch=False) as consumer:
        assert read(consumer, where, 1_000) == list(range(1_000))


def test_at_the_end_poll_waits_and_then_gives_nothing(cluster: Cluster, where: TopicPartition) -> None:
    with SimpleConsumer(cluster, {where: 1_000}) as consumer:
        began = time.monotonic()
        assert consumer.poll(0.2) == []
        assert 0.15 < time.monotonic() - began < 1.0
        with SimpleProducer(cluster) as producer:
            producer.send(where.topic, b"1000")
        assert read(consumer, where, 1) == [1_000]


@pytest.mark.parametrize("fault", ["disconnect", "error"])
def test_reading_goes_on_after_failures(broker: Broker, cluster: Cluster, where: TopicPartition, fault: str) -> None:
    with SimpleConsumer(cluster, {where: 0}, partition_max_bytes=4_000) as consumer:
        found = read(consumer, where, 50)
        if fault == "disconnect":
            rule = broker.faults.disconnect("Fetch", times=2)
        else:
            rule = broker.faults.error("Fetch", NotLeaderOrFollower, times=2)
        found += read(consumer, where, 1_000 - len(found))
        assert rule.hits == 2
    assert found == list(range(1_000))


def test_errors_that_do_not_pass_are_raised(broker: Broker, cluster: Cluster, where: TopicPartition) -> None:
    broker.faults.error("Fetch", TopicAuthorizationFailed)
    with SimpleConsumer(cluster, {where: 0}) as consumer, pytest.raises(TopicAuthorizationFailed):
        consumer.poll(5.0)


def test_failures_that_last_end_with_the_timeout(broker: Broker, cluster: Cluster, where: TopicPartition) -> None:
    broker.faults.error("Fetch", NotLeaderOrFollower, times=None)
    with SimpleConsumer(cluster, {where: 0}, timeout_s=0.3) as consumer, pytest.raises(NotLeaderOrFollower):
        consumer.poll(10.0)


def test_an_offset_that_is_gone(cluster: Cluster, where: TopicPartition) -> None:
    Admin(cluster).delete_records({where: 500})
    with SimpleConsumer(cluster, {where: 0}) as consumer, pytest.raises(OffsetOutOfRange, match="at offset 0"):
        consumer.poll(5.0)
    with SimpleConsumer(cluster, {where: 0}, on_out_of_range=lambda tp, offset: 500) as consumer:
        assert read(consumer, where, 500) == list(range(500, 1_000))


def test_positions_may_be_set_anew(cluster: Cluster, where: TopicPartition) -> None:
    with SimpleConsumer(cluster, {where: 0}, partition_max_bytes=2_000) as consumer:
        read(consumer, where, 50)
        consumer.assign({where: 990})
        assert read(consumer, where, 10) == list(range(990, 1_000))
