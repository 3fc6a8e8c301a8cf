"""Tasks that poll, cancel and close one consumer."""

import asyncio
import contextlib
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.errors import ClientClosed, UsageError
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from client.conftest import SOON_S
from client.consumer.conftest import RECORDS
from stopwatch import Stopwatch

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come


def test_cancelled_polls_take_no_record_along(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> list[tuple[int, int]]:
        seen = []
        async with barnabas.aio.Consumer(topic, **settings, max_poll_records=3) as consumer:
            delays = [0.0, 0.0005, 0.002, 0.01]
            while len(seen) < RECORDS:
                task = asyncio.create_task(consumer.poll())
                delays.append(delays.pop(0))
                await asyncio.wait([task], timeout=delays[-1])
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    seen += [(record.partition, record.offset) for record in await task]
        return seen

    seen = asyncio.run(asyncio.wait_for(story(), 60))
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(100)]


def test_one_task_polls_at_a_time(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> None:
        async with barnabas.aio.Consumer(topic, **settings) as consumer:
            first = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="another task polls"):
                await consumer.poll(1)
            assert await first

    asyncio.run(story())


def test_close_ends_what_other_tasks_wait_for(
    topic: str, settings: dict[str, Any], broker: Broker, stopwatch: Stopwatch
) -> None:
    async def story() -> None:
        consumer = barnabas.aio.Consumer(topic, **settings)
        read = 0
        while read < RECORDS:
            read += len(await consumer.poll(60))
        broker.faults.delay("OFFSET_COMMIT", 60)

        async def iterate() -> str:
            async for _ in consumer:
                pass
            return "ended"

        waiting = [asyncio.create_task(consumer.commit()), asyncio.create_task(iterate())]
        await asyncio.sleep(0.05)
        began = stopwatch()
        await consumer.close()
        commit, iteration = await asyncio.gather(*waiting, return_exceptions=True)
        assert stopwatch() - began < SOON_S
        assert isinstance(commit, ClientClosed)
        assert iteration == "ended"
        with pytest.raises(ClientClosed):
            await consumer.poll(1)

    asyncio.run(story())


def test_a_handler_of_process_that_closes_commits_what_was_done(topic: str, settings: dict[str, Any]) -> None:
    async def story() -> None:
        consumer = barnabas.aio.Consumer(topic, **settings)

        async def handler(record: Any) -> None:
            if (record.partition, record.offset) == (0, 8):
                await consumer.close(60)

        await consumer.process(handler, ordered_by="partition")
        async with barnabas.aio.Consumer(**settings) as again:
            committed = (await again.committed([(topic, 0)]))[TopicPartition(topic, 0)]
            assert committed is not None
            assert committed.offset == 8

    asyncio.run(story())
