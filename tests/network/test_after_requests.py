"""Work that the requests of a turn of the event loop share."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas.network.after_requests import AfterRequests


def order_of(scenario: Callable[[AfterRequests, asyncio.AbstractEventLoop, list[str]], None]) -> list[str]:
    """Runs a scenario in one callback of a loop, and returns what happened in which order, with a line for the next
    turn."""
    happened: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        after_requests = AfterRequests(loop)
        done = loop.create_future()

        def turn() -> None:
            scenario(after_requests, loop, happened)
            happened.append("the end of the callback")
            loop.call_later(0, done.set_result, None)

        loop.call_soon(turn)
        await done

    asyncio.run(main())
    return happened


@pytest.mark.parametrize("is_busy", [False, True])
def test_the_work_follows_the_requests_and_what_the_turn_has_left(is_busy: bool) -> None:
    def requests(after_requests: AfterRequests, loop: asyncio.AbstractEventLoop, happened: list[str]) -> None:
        if is_busy:
            loop.call_soon(happened.append, "another connection")
        after_requests.begin()
        for number in (1, 2):
            happened.append(f"request {number}")
            after_requests.add(lambda number=number: happened.append(f"after {number}"))  # type: ignore[misc]
        after_requests.end()

    shared = ["after 1", "after 2"]
    end = ["the end of the callback"]
    others = [*end, "another connection", *shared] if is_busy else [*shared, *end]
    assert order_of(requests) == ["request 1", "request 2", *others]


def test_two_connections_of_a_busy_turn_share_the_work() -> None:
    def requests(after_requests: AfterRequests, loop: asyncio.AbstractEventLoop, happened: list[str]) -> None:
        def second() -> None:
            after_requests.begin()
            happened.append("request 2")
            after_requests.add(lambda: happened.append("after 2"))
            after_requests.end()

        loop.call_soon(second)
        after_requests.begin()
        happened.append("request 1")
        after_requests.add(lambda: happened.append("after 1"))
        after_requests.end()

    assert order_of(requests) == ["request 1", "the end of the callback", "request 2", "after 1", "after 2"]


def test_work_that_fails_keeps_the_rest_from_nothing() -> None:
    def requests(after_requests: AfterRequests, loop: asyncio.AbstractEventLoop, happened: list[str]) -> None:
        loop.set_exception_handler(lambda _, context: happened.append(repr(context["exception"])))
        after_requests.begin()
        after_requests.add(lambda: 1 // 0)
        after_requests.add(lambda: happened.append("after"))
        after_requests.end()

    failure = "ZeroDivisionError('integer division or modulo by zero')"
    assert order_of(requests) == [failure, "after", "the end of the callback"]


def test_outside_of_requests_the_work_has_a_turn_of_its_own() -> None:
    def timer(after_requests: AfterRequests, loop: asyncio.AbstractEventLoop, happened: list[str]) -> None:
        after_requests.add(lambda: happened.append("after"))

    assert order_of(timer) == ["the end of the callback", "after"]
