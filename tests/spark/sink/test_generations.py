"""Which refresh a record is of, and where a group goes on behind one. No Spark."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import barnabas
from barnabas.errors import UsageError
from barnabas.spark.sink.generations import switch_generation, with_header
from barnabas.testing import Broker
from barnabas.types import TopicPartition

pa = pytest.importorskip("pyarrow")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def write(broker: Broker, topic: str, generation: int | None, count: int, partition: int = 0) -> None:
    headers = {} if generation is None else {"other": "x", "generation": str(generation)}
    for _ in range(count):
        broker.produce(topic, "x", partition=partition, headers=headers)


def test_a_group_goes_on_with_the_newest_generation(broker: Broker) -> None:
    broker.create_topic("refreshed", partitions=3)
    for generation, count in ((None, 5), (1, 300), (2, 7)):
        write(broker, "refreshed", generation, count)
    write(broker, "refreshed", 1, 4, partition=1)
    expected = {
        TopicPartition("refreshed", 0): 305,
        TopicPartition("refreshed", 1): 4,
        TopicPartition("refreshed", 2): 0,
    }
    assert switch_generation(broker.bootstrap_servers, "readers", "refreshed") == expected
    assert broker.committed("readers") == expected
    assert switch_generation(broker.bootstrap_servers, "readers", ["refreshed"], generation=1) == {
        **expected,
        TopicPartition("refreshed", 0): 5,
        TopicPartition("refreshed", 1): 0,
    }


def test_end_markers_are_no_records(broker: Broker) -> None:
    broker.create_topic("marked")
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for generation in (1, 2):
            for _ in range(5):
                with producer.transaction():
                    producer.send("marked", b"x", headers={"generation": b"%d" % generation})
    offsets = switch_generation(broker.bootstrap_servers, "g", "marked")
    assert offsets == {TopicPartition("marked", 0): 10}


def test_a_topic_without_generations_is_refused(broker: Broker) -> None:
    broker.create_topic("plain")
    write(broker, "plain", None, 3)
    with pytest.raises(UsageError, match="no record of plain has a header generation"):
        switch_generation(broker.bootstrap_servers, "g", "plain")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 6))
def test_the_first_record_of_any_generation(broker: Broker, counts: list[int], wanted: int) -> None:
    topic = f"any-{next(_numbers)}"
    broker.create_topic(topic)
    for generation, count in enumerate(counts):
        write(broker, topic, generation, count)
    offsets = switch_generation(broker.bootstrap_servers, "g", topic, generation=wanted)
    assert offsets == {TopicPartition(topic, 0): sum(counts[:wanted])}


def test_the_header_stands_behind_those_of_the_row() -> None:
    header = {"key": "generation", "value": b"7"}
    plain = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    assert with_header(plain, "generation", b"7").column("headers").to_pylist() == [[header], [header]]
    given = [[{"key": "a", "value": b"1"}], None]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    some = pa.RecordBatch.from_arrays([pa.array(given, kind), pa.array([b"a", b"b"])], ["headers", "value"])
    assert with_header(some, "generation", b"7").column("headers").to_pylist() == [[*given[0], header], [header]]
