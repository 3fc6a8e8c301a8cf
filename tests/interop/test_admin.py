"""Administration: topics, configs, records, offsets and groups, by every client that can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import wait_for
from .harness import wire
from .harness.broker import Broker
from .harness.clients import CLIENTS, Client, clients_without
from .harness.data import now_ms, numbered, record
from .harness.driver import ClientError, Driver
from .harness.groups import join, leave, settle

UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG = 3, 17, 36, 37, 40
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, SUBSCRIBED_TO_TOPIC, OFFSET_OUT_OF_RANGE = 68, 69, 86, 1
UNKNOWN_MEMBER = 25

administrators = pytest.mark.parametrize("client", clients_without("admin"), ids=str)
everyone = pytest.mark.parametrize("client", CLIENTS, ids=str)


def refusal(driver: Driver, op: str, **arguments: Any) -> int | None:
    with pytest.raises(ClientError) as refused:
        driver.call(op, **arguments)
    return refused.value.code


@administrators
def test_the_life_of_a_topic(driver: Driver, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    driver.call("create_topic", topic=name, partitions=2, configs={"retention.ms": "3600000"})
    wait_for(f"{name} in metadata", lambda: driver.call("metadata")["topics"].get(name) == 2)
    driver.call("produce", topic=name, records=numbered(1, partition=1))

    driver.call("create_partitions", topic=name, count=5)
    wait_for("five partitions", lambda: driver.call("metadata")["topics"].get(name) == 5)
    wait_for("a new partition to answer", lambda: offset_of(driver, name, 4) == 0)

    driver.call("delete_topic", topic=name)
    wait_for(f"{name} gone from metadata", lambda: name not in driver.call("metadata")["topics"])


def offset_of(driver: Driver, topic: str, partition: int) -> int | None:
    try:
        found: int = driver.call("offsets", topic=topic, partitions=[partition], at="latest")["offsets"][0]
    except ClientError:
        return None
    return found


@administrators
def test_wrong_wishes_are_refused_with_their_codes(
    client: Client, driver: Driver, topic: str, unique: Callable[[str], str]
) -> None:
    if client.name == "kafkajs":
        pytest.skip("KafkaJS swallows some of these errors and retries others")
    assert refusal(driver, "create_topic", topic=topic, partitions=1) == TOPIC_EXISTS
    assert refusal(driver, "create_topic", topic="no spaces allowed", partitions=1) == INVALID_TOPIC
    assert refusal(driver, "create_topic", topic=unique("none"), partitions=0) in (INVALID_PARTITIONS, -1, -186, None)
    configs = {"retention.ms": "not a number"}
    assert refusal(driver, "create_topic", topic=unique("bad"), partitions=1, configs=configs) == INVALID_CONFIG
    assert refusal(driver, "create_partitions", topic=topic, count=1) == INVALID_PARTITIONS
    assert refusal(driver, "delete_topic", topic=unique("unknown")) == UNKNOWN_TOPIC
    assert refusal(driver, "delete_records", topic=topic, partition=0, before=5) == OFFSET_OUT_OF_RANGE


@administrators
def test_topic_configs(client: Client, driver: Driver, topic: str) -> None:
    configs = driver.call("describe_config", topic=topic)["configs"]
    assert configs["cleanup.policy"] == "delete"
    assert configs["retention.ms"] == "604800000"
    assert configs["compression.type"] == "producer"
    if "alter_config" in client.lacks:
        return
    driver.call("alter_config", topic=topic, set={"retention.ms": "7200000", "max.message.bytes": "2000000"}, delete=[])
    wait_for("retention.ms set", lambda: config(driver, topic, "retention.ms") == "7200000")
    if "incremental_configs" in client.lacks:
        driver.call("alter_config", topic=topic, set={"max.message.bytes": "2000000"}, delete=[])
    else:
        driver.call("alter_config", topic=topic, set={}, delete=["retention.ms"])
    wait_for("retention.ms back at its default", lambda: config(driver, topic, "retention.ms") == "604800000")
    assert config(driver, topic, "max.message.bytes") == "2000000"
    wrong = {"cleanup.policy": "sometimes"}
    assert refusal(driver, "alter_config", topic=topic, set=wrong, delete=[]) in (INVALID_CONFIG, None)


def config(driver: Driver, topic: str, name: str) -> str:
    value: str = driver.call("describe_config", topic=topic)["configs"][name]
    return value


@administrators
def test_deleted_records_are_gone(client: Client, driver: Driver, topic: str) -> None:
    if "delete_records" in client.lacks:
        pytest.skip(f"{client.name} does not find the leader for it")
    driver.call("produce", topic=topic, records=numbered(20))
    assert driver.call("delete_records", topic=topic, partition=0, before=8)["low_watermark"] == 8
    assert driver.call("offsets", topic=topic, partitions=[0], at="earliest")["offsets"] == [8]
    assert driver.call("offsets", topic=topic, partitions=[0], at="latest")["offsets"] == [20]
    name = driver.new_id()
    driver.call("open", id=name, assign=[[topic, 0, "earliest"]], fetch_wait_ms=100)
    records = driver.call("take", id=name, count=12, timeout_ms=60_000)["records"]
    driver.call("close", id=name)
    assert [each["o"] for each in records] == list(range(8, 20))


@everyone
def test_offsets_by_time(client: Client, driver: Driver, unique: Callable[[str], str], broker: Broker) -> None:
    topic = unique("times")
    wire.create_topic(broker.address, topic, partitions=2)
    start = now_ms() - 1_000_000
    with wire.Connection(broker.address) as connection:
        # Timestamps out of order: the answer is the first offset whose timestamp is not earlier.
        for seconds in (0, 10, 50, 20, 30):
            wire.produce(connection, topic, 1, wire.simple_batch(b"x", timestamp=start + 1000 * seconds))
    assert ask(driver, topic, "earliest") == [0, 0]
    assert ask(driver, topic, "latest") == [0, 5]
    assert ask(driver, topic, start + 10_000, partition=1) == [1]
    assert ask(driver, topic, start + 10_001, partition=1) == [2]
    assert ask(driver, topic, start + 25_000, partition=1) == [2]
    assert ask(driver, topic, start + 50_001, partition=1)[0] in (-1, 5)
    if "max_timestamp" not in client.lacks:
        assert ask(driver, topic, "max_timestamp") == [-1, 2]


def ask(driver: Driver, topic: str, at: object, partition: int | None = None) -> list[int]:
    partitions = [0, 1] if partition is None else [partition]
    found: list[int] = driver.call("offsets", topic=topic, partitions=partitions, at=at)["offsets"]
    return found


@everyone
def test_a_thousand_partitions(client: Client, driver: Driver, drivers_thousand: str) -> None:
    assert driver.call("metadata")["topics"][drivers_thousand] == 1000
    driver.call("produce", topic=drivers_thousand, records=[record(b"far", b"k", partition=997)])
    name = driver.new_id()
    driver.call("open", id=name, assign=[[drivers_thousand, 997, "earliest"]], fetch_wait_ms=100)
    (received,) = driver.call("take", id=name, count=1, timeout_ms=60_000)["records"]
    driver.call("close", id=name)
    assert received["p"] == 997


@pytest.fixture(scope="module")
def drivers_thousand(broker: Broker) -> str:
    name = f"thousand.{now_ms()}"
    wire.create_topic(broker.address, name, partitions=1000)
    return name


@administrators
def test_the_life_of_a_group(client: Client, driver: Driver, topic: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    driver.call("produce", topic=topic, records=numbered(10))
    member = join(driver, group, [topic])
    settle([member], 1)
    driver.call("commit", id=member[1], offsets=[[topic, 0, 3]])
    assert group in driver.call("groups")["groups"]
    wait_for("the group to be stable", lambda: driver.call("describe_group", group=group)["state"] == "Stable")
    described = driver.call("describe_group", group=group)
    assert described["assignor"] == "range"
    assert described["members"] == [[[topic, 0]]] or "describe_members" in client.lacks

    if "delete_group" not in client.lacks:
        assert refusal(driver, "delete_group", group=group) == NON_EMPTY_GROUP
    if "delete_offsets" not in client.lacks:
        assert refusal(driver, "delete_offsets", group=group, topic=topic, partitions=[0]) == SUBSCRIBED_TO_TOPIC
    if "alter_offsets" not in client.lacks:
        # UNKNOWN_MEMBER_ID on the wire, which some clients translate.
        code = refusal(driver, "alter_offsets", group=group, offsets=[[topic, 0, 1]])
        assert code in (UNKNOWN_MEMBER, -1, None)

    leave(member)
    wait_for("the group to be empty", lambda: driver.call("describe_group", group=group)["state"] == "Empty")
    if "alter_offsets" not in client.lacks:
        driver.call("alter_offsets", group=group, offsets=[[topic, 0, 7]])
        assert driver.call("committed", group=group, topic=topic, partitions=[0])["offsets"] == [7]
    if "delete_offsets" not in client.lacks:
        driver.call("delete_offsets", group=group, topic=topic, partitions=[0])
        assert driver.call("committed", group=group, topic=topic, partitions=[0])["offsets"] == [-1]
    if "delete_group" not in client.lacks:
        driver.call("delete_group", group=group)
        assert group not in driver.call("groups")["groups"]
        assert refusal(driver, "delete_group", group=group) == GROUP_ID_NOT_FOUND
