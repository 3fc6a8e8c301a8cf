"""Coordinators' callbacks on the event loop: an answer at once, or a future."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.coordinator.event_loop import EventLoopScheduler, answer


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_an_answer_that_is_there_is_no_future(loop: asyncio.AbstractEventLoop) -> None:
    assert answer(loop, lambda reply: reply(5)) == 5
    assert answer(loop, lambda reply: reply(None)) is None


def test_a_late_answer_is_a_future_that_may_be_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    replies: list[Callable[[Any], None]] = []
    first, second = (answer(loop, replies.append) for _ in range(2))
    assert isinstance(first, asyncio.Future)
    assert isinstance(second, asyncio.Future)
    second.cancel()
    for reply in replies:
        reply(7)
    assert first.result() == 7
    assert second.cancelled()


def test_timers_run_in_their_order_and_not_when_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    scheduler, ran = EventLoopScheduler(loop), []
    scheduler.call_later(0.002, lambda: ran.append("later"))
    scheduler.call_later(0.001, lambda: ran.append("never")).cancel()
    scheduler.call_later(0, lambda: ran.append("now"))
    scheduler.call_later(0.004, loop.stop)
    loop.run_forever()
    assert ran == ["now", "later"]
    assert scheduler.monotonic() == pytest.approx(loop.time(), abs=1)
