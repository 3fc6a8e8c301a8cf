"""Where callbacks meet the event loop: answers that may come at once or later."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.coordinator.coordinator_runtime import TimerHandle

__all__ = ["EventLoopScheduler", "answer"]

T = TypeVar("T")


class EventLoopScheduler:
    """The event loop as the runtime's `Scheduler`."""

    __slots__ = ("_loop", "monotonic")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.monotonic = loop.time

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        # A timer of no time at all would wait behind whatever the sockets have by then.
        return self._loop.call_later(delay_s, callback) if delay_s > 0 else self._loop.call_soon(callback)


def answer(loop: asyncio.AbstractEventLoop, start: Callable[[Callable[[T], None]], None]) -> "T | asyncio.Future[T]":
    """Call `start` with a reply callback: what it replies with before it returns, or a future of what it will.

    A future that was cancelled, because its connection closed, ignores the reply.
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
