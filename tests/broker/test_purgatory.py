"""Parked operations: woken once for many changes, expired, cancelled, and nothing left behind."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from barnabas.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from broker.virtual_loop import run

pytestmark = pytest.mark.source


class Completion:
    def __init__(self) -> None:
        self.looks = 0
        self.ready = False
        self.expired = 0
        self.bug: Exception | None = None
        self.operation: DelayedOperation | None = None

    def try_complete(self, changed: Any) -> bool:
        self.looks += 1
        self.changed = list(changed)
        if self.bug is not None:
            raise self.bug
        return self.ready

    def expire(self) -> None:
        self.expired += 1


class Reply:
    def __init__(self) -> None:
        self.on_abandoned: Any = None
        self.failed: str | None = None

    def fail(self, reason: str) -> None:
        self.failed = reason


class Watched:
    def __init__(self) -> None:
        self.watchers: dict[Any, None] = {}


def partitions(count: int) -> list[Any]:
    return [Watched() for _ in range(count)]


def wake(*watched: Any) -> None:
    for partition in watched:
        for watcher in tuple(partition.watchers):
            watcher.partition_changed(partition)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_many_changes_in_one_turn_are_one_try_complete() -> None:
    async def main() -> None:
        purgatory, completion, watched = (
            DelayedOperationPurgatory(asyncio.get_running_loop()),
            Completion(),
            partitions(3),
        )
        purgatory.delay(completion, Reply(), watched, 10)  # type: ignore[arg-type]
        wake(*watched, *watched)
        assert completion.looks == 0, "never within the change itself"
        await turn()
        assert completion.looks == 1
        completion.ready = True
        wake(watched[1])
        await turn()
        assert (completion.looks, completion.expired, purgatory.size) == (2, 0, 0)
        assert completion.changed == [watched[1]]
        assert not any(partition.watchers for partition in watched)
        wake(*watched)
        await turn()
        assert completion.looks == 2

    run(main())


def test_the_deadline_answers_once() -> None:
    async def main() -> None:
        purgatory, completion, watched = (
            DelayedOperationPurgatory(asyncio.get_running_loop()),
            Completion(),
            partitions(1),
        )
        purgatory.delay(completion, Reply(), watched, 30)  # type: ignore[arg-type]
        await asyncio.sleep(31)
        wake(*watched)
        await turn()
        assert (completion.looks, completion.expired, purgatory.size) == (0, 1, 0)

    run(main())


def test_whoever_gives_up_is_forgotten_even_if_a_look_is_due() -> None:
    async def main() -> None:
        purgatory, completion, watched, reply = (
            DelayedOperationPurgatory(asyncio.get_running_loop()),
            Completion(),
            partitions(1),
            Reply(),
        )
        purgatory.delay(completion, reply, watched, 30)  # type: ignore[arg-type]
        wake(*watched)
        reply.on_abandoned()
        reply.on_abandoned()
        await asyncio.sleep(31)
        assert (completion.looks, completion.expired, purgatory.size) == (0, 0, 0)
        assert not watched[0].watchers

    run(main())


def test_a_bug_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        purgatory, completion, watched, reply = (
            DelayedOperationPurgatory(asyncio.get_running_loop()),
            Completion(),
            partitions(1),
            Reply(),
        )
        completion.bug = ZeroDivisionError("a bug")
        purgatory.delay(completion, reply, watched, 10)  # type: ignore[arg-type]
        wake(*watched)
        await turn()
        assert reply.failed == "ZeroDivisionError: a bug"
        assert purgatory.size == 0

    run(main())
    assert "a delayed request failed" in caplog.text


def test_operations_with_the_same_timeout_expire_each_at_its_own_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        purgatory, watched = DelayedOperationPurgatory(loop), partitions(1)
        expired: list[tuple[str, float]] = []

        class Named(Completion):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def expire(self) -> None:
                expired.append((self.name, loop.time()))

        for name in ("a", "b", "c"):
            purgatory.delay(Named(name), Reply(), watched, 10)  # type: ignore[arg-type]
            await asyncio.sleep(3)
        purgatory.delay(Named("short"), Reply(), watched, 2)  # type: ignore[arg-type]
        await asyncio.sleep(3)
        purgatory.delay(Named("after a pause"), Reply(), watched, 2)  # type: ignore[arg-type]
        await asyncio.sleep(20)
        assert expired == [("a", 10), ("short", 11), ("b", 13), ("after a pause", 14), ("c", 16)]
        assert purgatory.size == 0

    run(main())


def test_timers_do_not_grow_with_the_timeouts_that_clients_think_of() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        purgatory = DelayedOperationPurgatory(loop)
        kept = [purgatory.delay(Completion(), Reply(), (), 5000 + n) for n in range(100)]  # type: ignore[arg-type]
        for n in range(2000):
            purgatory.delay(Completion(), Reply(), (), 1000 + n).cancel()  # type: ignore[arg-type]
        live = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert len(kept) <= len(live) <= 2 * len(kept) + 64
        for operation in kept:
            operation.cancel()
        assert purgatory.size == 0

    run(main())


def test_an_operation_that_is_done_needs_no_garbage_collection() -> None:
    """Its completion knows it, as that of a follower's fetch does: a garbage collection would stop the event loop."""

    async def main() -> None:
        purgatory, watched = DelayedOperationPurgatory(asyncio.get_running_loop()), partitions(1)
        left: list[weakref.ref[Completion]] = []
        for end in ("completed", "expired", "cancelled"):
            completion = Completion()
            left.append(weakref.ref(completion))
            operation = completion.operation = purgatory.delay(completion, Reply(), watched, 10)  # type: ignore[arg-type]
            if end == "completed":
                completion.ready = True
                wake(*watched)
                await turn()
            elif end == "expired":
                await asyncio.sleep(11)
            else:
                operation.cancel()
            del completion, operation
        assert [each() for each in left] == [None] * 3

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
