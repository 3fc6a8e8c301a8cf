"""Connects the coordinators' callbacks to the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from barnabas.coordinator.coordinator_runtime import TimerHandle

__all__ = ["EventLoopScheduler", "MaybeFuture", "answer"]

T = TypeVar("T")
MaybeFuture: TypeAlias = T | asyncio.Future[T]


class EventLoopScheduler:
    """The event loop as the `Scheduler` of a runtime."""

    __slots__ = ("_loop", "monotonic")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.monotonic = loop.time

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        # A timer without delay would run after all sockets that are ready by then.
        return self._loop.call_later(delay_s, callback) if delay_s > 0 else self._loop.call_soon(callback)


def answer(loop: asyncio.AbstractEventLoop, start: Callable[[Callable[[T], None]], None]) -> MaybeFuture[T]:
    """Calls `start` with a reply callback. Returns the reply if it comes at once, otherwise a future of it.

    A future that is cancelled, because its connection is closed, ignores the reply.
    """
    early: list[T] = []
    future: asyncio.Future[T] | None = None

    def reply(response: T) -> None:
        if future is None:
            early.append(response)
        elif not future.done():
            future.set_result(response)

    start(reply)
    if early:
        return early[0]
    future = loop.create_future()
    return future
