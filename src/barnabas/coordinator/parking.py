"""Where callbacks meet the event loop: answers that may come at once or later."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.coordinator.runtime import TimerHandle

__all__ = ["LoopScheduler", "answer"]

T = TypeVar("T")


class LoopScheduler:
    """The event loop as the runtime's `Scheduler`."""

    __slots__ = ("call_later_raw", "monotonic")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.monotonic = loop.time
        self.call_later_raw = loop.call_later

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        return self.call_later_raw(delay_s, callback)


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
