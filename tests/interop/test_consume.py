"""Consuming without a group: positions, waiting, pausing, sizes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from .harness import wire
from .harness.broker import Broker
from .harness.clients import CLIENTS, Client
from .harness.data import essences, now_ms, numbered, record
from .harness.driver import Driver

pytestmark = pytest.mark.parametrize("client", CLIENTS, ids=str)
TAKE_MS = 60_000
ABSENCE_MS = 400


def timed_topic(broker: Broker, topic: str) -> int:
    """Twenty records, a second apart, each in its own batch; gives the timestamp of the first."""
    start = now_ms() - 3_600_000
    with wire.Connection(broker.address) as connection:
        for index in range(20):
            batch = wire.simple_batch(str(index).encode(), timestamp=start + 1000 * index)
            assert wire.produce(connection, topic, 0, batch) == (0, index)
    return start


def offsets_from(driver: Driver, topic: str, position: Any, count: int) -> list[int]:
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, position]], fetch_wait_ms=100)
    records = driver.call("take", id=name, count=count, timeout_ms=TAKE_MS)["records"]
    driver.call("close", id=name)
    return [each["o"] for each in records]


def test_positions(driver: Driver, topic: str, broker: Broker) -> None:
    start = timed_topic(broker, topic)
    assert offsets_from(driver, topic, "earliest", 20) == list(range(20))
    assert offsets_from(driver, topic, 7, 13) == list(range(7, 20))
    assert offsets_from(driver, topic, {"timestamp": start + 10_000}, 10) == list(range(10, 20))
    assert offsets_from(driver, topic, {"timestamp": start + 10_001}, 9) == list(range(11, 20))


def test_latest_sees_only_what_comes_afterwards(driver: Driver, topic: str, broker: Broker) -> None:
    timed_topic(broker, topic)
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, "latest"]])
    driver.call("produce", topic=topic, records=numbered(2))
    records = driver.call("take", id=name, count=2, timeout_ms=TAKE_MS)["records"]
    driver.call("close", id=name)
    assert [each["o"] for each in records] == [20, 21]


def test_an_offset_out_of_range_resets_to_the_earliest(
    client: Client, driver: Driver, topic: str, broker: Broker
) -> None:
    if "offset_reset" in client.lacks:
        pytest.skip(f"{client.name} has no manual assignment to reset")
    timed_topic(broker, topic)
    assert offsets_from(driver, topic, 1000, 20) == list(range(20))


def test_a_waiting_fetch_is_answered_as_soon_as_a_record_comes(driver: Driver, topic: str, broker: Broker) -> None:
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, "latest"]], fetch_wait_ms=3000)
    waited = []
    with wire.Connection(broker.address) as connection:
        for index in range(4):
            # The absence check lets the client's next fetch reach the broker and wait there.
            assert driver.call("take", id=name, count=1, timeout_ms=150)["records"] == []
            wire.produce(connection, topic, 0, wire.simple_batch(b"x"))
            start = time.monotonic()
            (received,) = driver.call("take", id=name, count=1, timeout_ms=TAKE_MS)["records"]
            waited.append(time.monotonic() - start)
            assert received["o"] == index
    driver.call("close", id=name)
    assert min(waited[1:]) < 1.0, f"records took {waited} s to arrive; the fetch may wait 3 s"


def test_a_fetch_for_many_bytes_is_answered_when_its_time_is_up(driver: Driver, topic: str, broker: Broker) -> None:
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, "latest"]], fetch_wait_ms=600, fetch_min_bytes=1_000_000)
    with wire.Connection(broker.address) as connection:
        wire.produce(connection, topic, 0, wire.simple_batch(b"small"))
    records = driver.call("take", id=name, count=1, timeout_ms=TAKE_MS)["records"]
    driver.call("close", id=name)
    assert len(records) == 1


def test_a_paused_partition_keeps_quiet(client: Client, driver: Driver, topic: str, broker: Broker) -> None:
    if "pause" in client.lacks:
        pytest.skip(f"{client.name} cannot pause")
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, "earliest"]])
    with wire.Connection(broker.address) as connection:
        wire.produce(connection, topic, 0, wire.simple_batch(b"before"))
        assert len(driver.call("take", id=name, count=1, timeout_ms=TAKE_MS)["records"]) == 1
        driver.call("pause", id=name, partitions=[[topic, 0]])
        wire.produce(connection, topic, 0, wire.simple_batch(b"during"))
        assert driver.call("take", id=name, count=1, timeout_ms=ABSENCE_MS)["records"] == []
        driver.call("resume", id=name, partitions=[[topic, 0]])
    assert len(driver.call("take", id=name, count=1, timeout_ms=TAKE_MS)["records"]) == 1
    driver.call("close", id=name)


def test_a_record_larger_than_the_fetch_limit_still_arrives(driver: Driver, topic: str) -> None:
    sent = [record(bytes([65 + index]) * 300_000, b"k") for index in range(3)]
    driver.call("produce", topic=topic, records=sent)
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, 0]], max_partition_bytes=10_000)
    records = driver.call("take", id=name, count=3, timeout_ms=TAKE_MS)["records"]
    driver.call("close", id=name)
    assert essences(records) == essences(sent)


def test_many_partitions_at_once(driver: Driver, unique: Callable[[str], str], broker: Broker) -> None:
    topic = unique("wide")
    wire.create_topic(broker.address, topic, partitions=6)
    sent = [record(f"{index}".encode(), b"k", partition=index % 6) for index in range(120)]
    driver.call("produce", topic=topic, records=sent)
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, partition, 0] for partition in range(6)])
    records = driver.call("take", id=name, count=120, timeout_ms=TAKE_MS)["records"]
    driver.call("close", id=name)
    for partition in range(6):
        received = [each for each in records if each["p"] == partition]
        assert [each["o"] for each in received] == list(range(20))
        assert essences(received) == essences(sent[partition::6])
