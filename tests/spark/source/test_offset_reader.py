"""Partitions and offsets that a query reads from brokers. No session."""

from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.spark.source.offset_reader import LogEnd, OffsetReader
from barnabas.spark.source.options import SourceOptions
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from spark.conftest import Writer


@pytest.fixture
def orders(broker: Broker, topic: str, writer: Writer) -> str:
    """Two partitions: ten records of 0 to 9 seconds, and none."""
    broker.create_topic(topic, partitions=2)
    for number in range(10):
        writer.write(topic, 0, range(number, number + 1), timestamp=1000 * number)
    return topic


@pytest.fixture
def reader_of(broker: Broker) -> Iterator[Any]:
    readers: list[OffsetReader] = []

    def make(*, streaming: bool = True, **options: str) -> tuple[OffsetReader, SourceOptions]:
        given = {"bootstrap.servers": broker.bootstrap_servers, **options}
        parsed = SourceOptions.parse(given, streaming=streaming)
        readers.append(OffsetReader(parsed))
        return readers[-1], parsed

    yield make
    for reader in readers:
        reader.close()


def test_partitions_by_name_pattern_and_hand(reader_of: Any, orders: str) -> None:
    both = [TopicPartition(orders, 0), TopicPartition(orders, 1)]
    found = reader_of(subscribe=orders)[0].topics()
    assert (found.partitions, list(found.ids)) == (both, [orders])
    assert reader_of(subscribePattern=f"{orders[:-1]}{orders[-1:]}")[0].topics().partitions == both
    assert reader_of(subscribePattern=orders[:-1])[0].topics().partitions == [], "whole names match"
    assert reader_of(assign=f'{{"{orders}": [1]}}')[0].topics().partitions == both[1:]


def test_what_is_not_there_is_named(reader_of: Any, orders: str) -> None:
    reader = reader_of(subscribe=f"{orders}x")[0]
    with pytest.raises(
        UsageError, match=rf"option subscribe: topic '{orders}x' does not exist at .*did you mean {orders}"
    ):
        reader.topics()
    assert reader.topics(missing_ok=True).partitions == []
    reader = reader_of(assign=f'{{"{orders}": [1, 7]}}')[0]
    with pytest.raises(UsageError, match=f"option assign: {orders}-7 does not exist"):
        reader.topics()
    assert reader.topics(missing_ok=True).partitions == [TopicPartition(orders, 1)]


def test_positions_become_offsets(reader_of: Any, orders: str, broker: Broker) -> None:
    partitions = first, second = [TopicPartition(orders, 0), TopicPartition(orders, 1)]
    for options, expected in (
        ({"startingOffsets": "earliest"}, [0, 0]),
        ({"startingOffsets": "latest"}, [10, 0]),
        ({"startingOffsets": f'{{"{orders}": {{"0": 4, "1": -2}}}}'}, [4, 0]),
        ({"startingOffsets": f'{{"{orders}": {{"0": -1, "1": 0}}}}'}, [10, 0]),
        ({"startingTimestamp": "6500", "startingOffsetsByTimestampStrategy": "latest"}, [7, 0]),
    ):
        reader, parsed = reader_of(subscribe=orders, **options)
        assert reader.resolve(parsed.starting, partitions) == dict(zip(partitions, expected, strict=True))
    reader, parsed = reader_of(subscribe=orders, startingTimestamp="6500")
    with pytest.raises(UsageError, match=f"{orders}-1 has no record at or after 6500 ms"):
        reader.resolve(parsed.starting, partitions)
    reader, parsed = reader_of(subscribe=orders, startingOffsets=f'{{"{orders}": {{"0": 4}}}}')
    with pytest.raises(UsageError, match=f"says nothing of {orders}-1; all partitions need an offset"):
        reader.resolve(parsed.starting, partitions)
    with pytest.raises(UsageError, match=f"names {orders}-0, which the query does not read"):
        reader.resolve(parsed.starting, [])
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets(f"{orders}-group", {first: 6})
    reader, parsed = reader_of(subscribe=orders, startingOffsets="group", groupIdForLag=f"{orders}-group")
    assert reader.resolve(parsed.starting, partitions) == {first: 6, second: 0}
    reader.commit_for_lag(f"{orders}-group", {first: LogEnd(8, 0)})
    assert reader.resolve(parsed.starting, partitions)[first] == 8


def test_ends_epochs_and_sizes(reader_of: Any, orders: str) -> None:
    first, second = TopicPartition(orders, 0), TopicPartition(orders, 1)
    reader = reader_of(subscribe=orders)[0]
    ends = reader.ends([first, second])
    assert (ends[first].offset, ends[second].offset) == (10, 0)
    assert ends[first] == LogEnd(10, ends[first].epoch)
    assert ends[first].epoch >= 0
    assert reader.ends_of_epochs({first: ends[first].epoch}) == {first: 10}
    sizes = reader.record_bytes([first, second])
    assert 60 < sizes[first] < 100, "a batch each"
    assert sizes[second] == 1000, "a guess"
    assert reader.wait_for_records({first: 3}, 60)
    assert not reader.wait_for_records({first: 10}, 0.01)
