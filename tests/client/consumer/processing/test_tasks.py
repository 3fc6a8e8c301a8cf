"""The pool of tasks of `process` on an event loop, without a consumer."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.client.consumer.processing.records_in_progress import RecordsInProgress
from barnabas.client.consumer.processing.tasks import TaskPool
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.compiled.consumer_records import ConsumerRecord, RecordOrigin
from barnabas.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 30.0


def record(offset: int, key: Any = None, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord(RecordOrigin("t", partition, 3, 0), offset, 0, key, b"", ())


async def call(function: Callable[..., Any], *arguments: Any) -> None:
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result


def pool_of(
    handler: Callable[[Any], Any], count: int = 4, limit: int = 100, on_error: Any = None, wake: Any = lambda: None
) -> TaskPool:
    return TaskPool(RecordsInProgress("key", limit, lambda _: None), handler, on_error, count, call=call, wake=wake)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_as_many_records_are_handled_at_a_time_as_there_may_be_workers() -> None:
    async def story() -> None:
        running = most = 0

        async def handle(_: Any) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        pool = pool_of(handle, count=3)
        pool.add([record(offset) for offset in range(20)])
        assert await pool.finish(LONG_S) == 0
        assert most == 3
        assert pool.offsets({P0: OffsetAndMetadata(20)})[P0].offset == 20

    run(story)


def test_functions_that_are_no_coroutines_are_called_too() -> None:
    async def story() -> None:
        seen: list[int] = []
        pool = pool_of(lambda each: seen.append(each.offset), count=1)
        pool.add([record(offset) for offset in range(5)])
        assert await pool.finish(LONG_S) == 0
        assert seen == [0, 1, 2, 3, 4]

    run(story)


def test_an_exception_stops_the_pool_and_wakes_the_dispatcher() -> None:
    async def story() -> None:
        woken = asyncio.Event()
        seen: list[int] = []

        async def handle(each: Any) -> None:
            seen.append(each.offset)
            if each.offset == 1:
                raise ValueError("bad record")

        pool = pool_of(handle, count=1, limit=4, wake=woken.set)
        pool.add([record(offset) for offset in range(4)])
        await asyncio.wait_for(woken.wait(), LONG_S)
        await pool.finish(LONG_S)
        assert isinstance(pool.failure, ValueError)
        assert any("t-0, offset 1" in note for note in pool.failure.__notes__)
        assert seen == [0, 1]
        assert pool.offsets({P0: OffsetAndMetadata(4)})[P0].offset == 1

    run(story)


def test_a_record_that_on_error_takes_is_done() -> None:
    async def story() -> None:
        failed: list[int] = []

        async def on_error(each: Any, error: Exception) -> None:
            assert isinstance(error, ZeroDivisionError)
            failed.append(each.offset)

        pool = pool_of(lambda each: 1 // each.offset, on_error=on_error)
        pool.add([record(offset) for offset in range(4)])
        assert await pool.finish(LONG_S) == 0
        assert pool.failure is None
        assert failed == [0]
        assert pool.offsets({P0: OffsetAndMetadata(4)})[P0].offset == 4

    run(story)


def test_tasks_that_take_too_long_are_cancelled() -> None:
    async def story() -> None:
        cancelled: list[int] = []

        async def handle(each: Any) -> None:
            try:
                await asyncio.sleep(0 if each.partition else LONG_S)
            except asyncio.CancelledError:
                cancelled.append(each.offset)
                raise

        pool = pool_of(handle)
        pool.add([record(7)])
        pool.add([record(8, partition=1)])
        assert await pool.finish(LONG_S, [P1]) == 0, "only the other partition has a slow record"
        assert await pool.finish(0.01, [P0]) == 1
        assert cancelled == [7]
        assert pool.failure is None
        assert pool.offsets({P0: OffsetAndMetadata(8), P1: OffsetAndMetadata(9)}) == {
            P0: OffsetAndMetadata(7),
            P1: OffsetAndMetadata(9),
        }

    run(story)


def test_waiting_records_of_a_partition_are_dropped() -> None:
    async def story() -> None:
        seen: list[tuple[int, int]] = []

        async def handle(each: Any) -> None:
            seen.append((each.partition, each.offset))
            await asyncio.sleep(0)

        pool = pool_of(handle, count=1)
        pool.add([record(offset) for offset in range(3)])
        pool.add([record(offset, partition=1) for offset in range(2)])
        pool.drop_waiting([P0])
        assert await pool.finish(LONG_S) == 0
        assert seen == [(0, 0), (1, 0), (1, 1)]

    run(story)


def test_there_is_room_again_when_enough_records_are_done() -> None:
    async def story() -> None:
        woken = asyncio.Event()
        pool = pool_of(lambda _: None, limit=10, wake=woken.set)
        assert pool.room == 10
        pool.add([record(offset) for offset in range(10)])
        assert pool.room == 0
        await asyncio.wait_for(woken.wait(), LONG_S)
        assert pool.room > 5

    run(story)


def test_a_stopped_pool_begins_no_record() -> None:
    async def story() -> None:
        seen: list[int] = []
        pool = pool_of(lambda each: seen.append(each.offset))
        pool.stop()
        pool.add([record(0)])
        await pool.give_way()
        assert await pool.finish(0.0) == 0
        assert seen == []

    run(story)


def test_records_of_a_key_whose_handler_was_cancelled_are_handled_when_the_partition_comes_back() -> None:
    async def story() -> None:
        handled: list[int] = []
        hangs = True

        async def handler(record: ConsumerRecord) -> None:
            if hangs:
                await asyncio.sleep(LONG_S)
            handled.append(record.offset)

        pool = pool_of(handler)
        pool.add([record(offset, b"k") for offset in range(3)])
        await pool.give_way()
        pool.drop_waiting([P0])
        assert await pool.finish(0.0, [P0]) == 1
        pool.forget([P0])
        hangs = False
        pool.add([record(offset, b"k") for offset in range(3)])
        assert await pool.finish(LONG_S) == 0
        assert handled == [0, 1, 2]
        assert pool.offsets({P0: OffsetAndMetadata(3)}) == {P0: OffsetAndMetadata(3)}

    run(story)


def test_a_handler_that_waits_for_a_cancelled_task_has_failed() -> None:
    async def story() -> None:
        handled: list[int] = []

        async def handler(record: ConsumerRecord) -> None:
            handled.append(record.offset)
            other = asyncio.create_task(asyncio.sleep(LONG_S))
            other.cancel()
            await other

        pool = pool_of(handler)
        pool.add([record(offset, b"k") for offset in range(3)])
        await pool.finish(LONG_S)
        assert isinstance(pool.failure, asyncio.CancelledError)
        assert handled == [0]
        assert pool.offsets({P0: OffsetAndMetadata(3)})[P0].offset == 0

    run(story)
