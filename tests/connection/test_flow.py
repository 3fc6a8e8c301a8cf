"""Coroutines that await promises, without an event loop."""

import pytest

from barnabas.connection.flow import result_of, settle
from barnabas.connection.promise import Promise, resolved


def test_a_flow_goes_on_when_its_promise_is_settled() -> None:
    first: Promise[int] = Promise()
    second: Promise[int] = Promise()

    async def flow() -> int:
        return await first + await resolved(10) + await second

    done = settle(flow())
    assert not done.done
    first.resolve(1)
    assert not done.done
    second.resolve(100)
    assert done.result() == 111


def test_many_settled_promises_take_no_stack() -> None:
    async def flow() -> int:
        return sum([await resolved(1) for _ in range(5000)])

    assert settle(flow()).result() == 5000


def test_an_error_of_a_promise_is_raised_within_the_flow() -> None:
    promise: Promise[int] = Promise()
    seen: list[str] = []

    async def flow() -> None:
        try:
            await promise
        except ValueError as error:
            seen.append(str(error))
            raise KeyError("then") from error

    done = settle(flow())
    promise.fail(ValueError("first"))
    assert seen == ["first"]
    with pytest.raises(KeyError, match="then"):
        done.result()


def test_ctrl_c_in_a_flow_settles_it_and_goes_on() -> None:
    promise: Promise[int] = Promise()

    async def flow() -> None:
        await promise
        raise KeyboardInterrupt

    done = settle(flow())
    with pytest.raises(KeyboardInterrupt):
        promise.resolve(1)
    assert isinstance(done.error, KeyboardInterrupt)


def test_a_synchronous_client_has_nothing_to_wait_for() -> None:
    async def flow(promise: Promise[int]) -> int:
        return await promise

    assert result_of(flow(resolved(5))) == 5
    with pytest.raises(AssertionError, match="waits for an event loop"):
        result_of(flow(Promise()))
