"""Producing: every client, every acknowledgement, idempotence, sizes, timestamps and what a broker must refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import wait_for
from .harness import wire
from .harness.broker import SETTINGS, Broker, LocalBroker
from .harness.clients import CLIENTS, Client
from .harness.data import CODECS, essences, now_ms, numbered, record
from .harness.driver import ClientError, Driver

MESSAGE_TOO_LARGE, INVALID_RECORD = 10, 87
pytestmark = pytest.mark.parametrize("client", CLIENTS, ids=str)


def read_all(driver: Driver, topic: str, count: int, partition: int = 0) -> list[dict[str, object]]:
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, partition, 0]], fetch_wait_ms=100)
    records = driver.call("take", id=name, count=count, timeout_ms=60_000)["records"]
    driver.call("close", id=name)
    assert len(records) == count
    return list(records)


def end_offset(broker: Broker, topic: str, partition: int = 0) -> int:
    with wire.Connection(broker.address) as connection:
        error, offset = wire.end_offset(connection, topic, partition)
    assert error == 0
    return offset


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(client: Client, driver: Driver, topic: str, broker: Broker, acks: str) -> None:
    sent = numbered(50)
    offsets = driver.call("produce", topic=topic, records=sent, acks=acks)["offsets"]
    wait_for(f"50 records in {topic}", lambda: end_offset(broker, topic) == 50)
    if acks != "0" and "offsets" not in client.lacks:
        assert offsets == [[0, index] for index in range(50)]
    assert essences(read_all(driver, topic, 50)) == essences(sent)


def test_a_topic_appears_when_it_is_written(
    driver: Driver, unique: Callable[[str], str], own_broker: LocalBroker
) -> None:
    name = unique("new")
    driver.call("produce", topic=name, records=numbered(3))
    assert driver.call("metadata")["topics"][name] == int(SETTINGS["num.partitions"])
    assert end_offset(own_broker, name) == 3


@pytest.mark.parametrize("codec", CODECS)
def test_idempotent_batches_carry_their_producer(
    client: Client, driver: Driver, topic: str, broker: Broker, codec: str
) -> None:
    for _ in range(3):
        driver.call("produce", topic=topic, records=numbered(20), idempotent=True, compression=codec)
    batches = wire.fetch_all(broker.address, topic)
    assert sum(batch.record_count for batch in batches) == 60
    assert all(batch.codec == CODECS.index(codec) for batch in batches)
    if client.name == "kcat":
        return  # each run is a new producer
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert [batch.base_sequence for batch in batches] == [batch.base_offset for batch in batches]


def test_a_message_of_900_kilobytes(driver: Driver, topic: str) -> None:
    sent = [record(bytes([index]) * 900_000, b"big") for index in range(3)]
    for each in sent:
        driver.call("produce", topic=topic, records=[each], max_request_bytes=1_000_000)
    assert essences(read_all(driver, topic, 3)) == essences(sent)


def test_a_message_above_the_limit_is_refused(client: Client, driver: Driver, topic: str, broker: Broker) -> None:
    if "large_requests" in client.lacks:
        pytest.skip(f"{client.name} does not send requests above a megabyte")
    with pytest.raises(ClientError) as refused:
        driver.call("produce", topic=topic, records=[record(b"x" * 1_200_000)], max_request_bytes=2_000_000)
    assert refused.value.code in (MESSAGE_TOO_LARGE, None)
    assert end_offset(broker, topic) == 0
    driver.call("produce", topic=topic, records=numbered(1), max_request_bytes=2_000_000)
    assert end_offset(broker, topic) == 1


def test_the_broker_stamps_records_where_the_topic_says_so(
    driver: Driver, unique: Callable[[str], str], broker: Broker
) -> None:
    name = unique("stamped")
    wire.create_topic(broker.address, name, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    driver.call("produce", topic=name, records=[record(b"x", b"k"), record(b"y", b"k")], compression="gzip")
    records = read_all(driver, name, 2)
    assert all(before <= int(str(each["t"])) <= now_ms() for each in records)
    assert all(batch.crc_is_right for batch in wire.fetch_all(broker.address, name))


def test_a_compacted_topic_refuses_a_record_without_key(
    client: Client, driver: Driver, unique: Callable[[str], str], broker: Broker
) -> None:
    name = unique("compacted")
    wire.create_topic(broker.address, name, configs={"cleanup.policy": "compact"})
    with pytest.raises(ClientError) as refused:
        driver.call("produce", topic=name, records=[record(b"no key")])
    assert client.lacks & {"error_codes", "record_errors"} or refused.value.code == INVALID_RECORD
    driver.call("produce", topic=name, records=[record(b"value", b"key"), record(None, b"key")])
    assert end_offset(broker, name) == 2
