"""until_end: all records that are there, however long the group takes to assign partitions."""

import asyncio
from typing import Any

import pytest

import barnabas
from barnabas import aio
from barnabas.errors import OperationTimedOut
from barnabas.testing import Broker


def settings_of(broker: Broker, name: str) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, "group_id": name, "auto_offset_reset": "earliest"}


def test_a_slow_join_is_not_the_end(broker: Broker, name: str) -> None:
    broker.create_topic(name, partitions=2)
    for number in range(5):
        broker.produce(name, str(number), partition=number % 2)
    broker.faults.delay("JOIN_GROUP", 0.5)
    with barnabas.Consumer(name, **settings_of(broker, name)) as consumer:
        assert sorted(int(record.value or b"") for record in consumer.until_end()) == [0, 1, 2, 3, 4]
        assert list(consumer.until_end()) == []
        broker.produce(name, "5", partition=1)
        assert [record.value for record in consumer.until_end(timeout=30)] == [b"5"]


def test_it_waits_on_an_event_loop_as_well(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    broker.produce(name, "a")
    broker.faults.delay("JOIN_GROUP", 0.5)

    async def main() -> list[bytes | None]:
        async with aio.Consumer(name, **settings_of(broker, name)) as consumer:
            return [record.value async for record in consumer.until_end()]

    assert asyncio.run(main()) == [b"a"]


def test_a_wait_in_vain_says_for_what(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    broker.faults.delay("JOIN_GROUP", 2.0)
    with (
        barnabas.Consumer(name, **settings_of(broker, name)) as consumer,
        pytest.raises(OperationTimedOut, match=r"read nothing for 0\.1 s; it is"),
    ):
        list(consumer.until_end(timeout=0.1))
