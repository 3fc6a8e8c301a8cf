"""`barnabas.aio.Consumer` on its loop: cancellation, tasks beside each other, listeners that are coroutines."""

import asyncio
import threading
import time
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import WokenUp
from barnabas.testing import Broker
from client.conftest import SOON_S
from stopwatch import Stopwatch

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come


def test_coroutine_functions_are_listeners_too(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> list[str]:
        heard: list[str] = []

        async def assigned(consumer: barnabas.aio.Consumer, partitions: Any) -> None:
            await consumer.position(partitions[0], timeout=10)
            heard.append("assigned")

        async def revoked(consumer: barnabas.aio.Consumer, partitions: Any) -> None:
            await consumer.commit()
            heard.append("revoked")

        async with barnabas.aio.Consumer(
            topic, **settings, on_assigned=assigned, on_revoked=revoked, enable_auto_commit=False
        ) as consumer:
            await consumer.poll(60)
        return heard

    assert asyncio.run(story()) == ["assigned", "revoked"]
    with barnabas.Consumer(**settings) as consumer:
        assert any(consumer.committed([(topic, 0), (topic, 1)]).values())


def test_a_consumer_made_outside_a_loop(topic: str, settings: dict[str, Any]) -> None:
    consumer = barnabas.aio.Consumer(topic, **settings)

    async def story() -> int:
        async with consumer:
            return len(await consumer.poll(60))

    assert asyncio.run(story())


def test_a_cancelled_block_closes_at_once(
    topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch
) -> None:
    async def block(entered: asyncio.Event) -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            await consumer.poll(60)
            entered.set()
            while True:
                await consumer.poll()

    async def story() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(block(entered))
        await entered.wait()
        broker.faults.delay("LEAVE_GROUP", 60)
        began = stopwatch()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stopwatch() - began < SOON_S

    asyncio.run(story())


def test_heartbeats_go_out_while_records_are_worked_on(topic: str, settings: dict[str, Any], broker: Broker) -> None:
    async def story() -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            await anext(aiter(consumer))
            heartbeats = broker.faults.delay("HEARTBEAT", 0, times=None)
            done = 0
            async for _ in consumer:
                time.sleep(0.01)  # noqa: ASYNC251 -- the point is that this work awaits nothing
                done += 1
                if done == 150:
                    break
            assert heartbeats.hits >= 3, "in a second and a half, with one due each 0.3 s"

    asyncio.run(story())


def test_wakeup_from_another_thread(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with barnabas.aio.Consumer(**settings) as consumer:
            consumer.assign([(topic, 0)])
            consumer.seek_to_end()
            threading.Timer(0.05, consumer.wakeup).start()
            with pytest.raises(WokenUp):
                await consumer.poll(60)

    asyncio.run(story())
