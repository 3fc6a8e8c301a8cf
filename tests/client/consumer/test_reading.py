"""Reads from a broker in this process, with faults: positions and errors."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas import TopicPartition
from barnabas.errors import NotLeaderOrFollower, OffsetOutOfRange
from barnabas.testing import Broker
from stopwatch import Stopwatch


@pytest.fixture
def topic_partition(broker: Broker, name: str) -> TopicPartition:
    """A partition with the numbers 0 to 999 in batches of some 50."""
    broker.create_topic(name)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=2_000) as producer:
        for number in range(1_000):
            producer.send(name, b"%d" % number)
    return TopicPartition(name, 0)


@pytest.fixture
def reading(broker: Broker, topic_partition: TopicPartition) -> Iterator[Callable[..., barnabas.Consumer]]:
    """A consumer that begins at an offset."""
    opened: list[barnabas.Consumer] = []

    def begin(start: int, **settings: Any) -> barnabas.Consumer:
        consumer = barnabas.Consumer(
            bootstrap_servers=broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
        )
        opened.append(consumer)
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, start)
        return consumer

    yield begin
    for consumer in opened:
        consumer.close()


def read(consumer: barnabas.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(record.value) for record in consumer.poll(60, count - len(found))]
    return found


@pytest.mark.parametrize("start", [0, 1, 37, 999])
def test_reading_begins_exactly_at_the_offset(reading: Any, topic_partition: TopicPartition, start: int) -> None:
    consumer = reading(start)
    assert read(consumer, 1_000 - start) == list(range(start, 1_000))
    assert consumer.position(topic_partition) == 1_000
    assert consumer.health().lag == {topic_partition: 0}


def test_small_answers_are_put_together(reading: Any) -> None:
    assert read(reading(0, max_partition_fetch_bytes=1), 1_000) == list(range(1_000))


def test_at_the_end_poll_waits_and_then_gives_nothing(
    broker: Broker, reading: Any, topic_partition: TopicPartition, stopwatch: Stopwatch
) -> None:
    consumer = reading(1_000)
    began, began_run = time.monotonic(), stopwatch()
    assert consumer.poll(0.2) == []
    assert time.monotonic() - began > 0.15
    assert stopwatch() - began_run < 1.0
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic_partition.topic, b"1000")
    assert read(consumer, 1) == [1_000]


@pytest.mark.parametrize("fault", ["disconnect", "error"])
def test_reading_goes_on_after_failures(broker: Broker, reading: Any, fault: str) -> None:
    consumer = reading(0, max_partition_fetch_bytes=4_000)
    found = read(consumer, 50)
    if fault == "disconnect":
        rule = broker.faults.disconnect("Fetch", times=2)
    else:
        rule = broker.faults.error("Fetch", NotLeaderOrFollower, times=2)
    found += read(consumer, 1_000 - len(found))
    assert rule.hits == 2
    assert found == list(range(1_000))


def test_an_offset_that_is_gone(broker: Broker, reading: Any, topic_partition: TopicPartition) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({topic_partition: 500})
    strict = reading(0, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRange, match=f"{topic_partition}: offset 0 "):
        strict.poll(60)
    assert read(reading(0), 500) == list(range(500, 1_000))


def test_an_offset_beyond_the_end_is_reset_at_once(reading: Any, topic_partition: TopicPartition) -> None:
    consumer = reading(990)
    read(consumer, 10)
    consumer.seek(topic_partition, 5_000)
    assert [record.offset for record in consumer.poll(60, max_records=1)] == [0]  # not when the metadata expire
