"""Runs flows: coroutines that await promises, so that the same code serves threads and event loops."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from barnabas.connection.promise import Promise

__all__ = ["result_of", "settle"]

T = TypeVar("T")


def settle(flow: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    """Runs a flow up to its first unsettled promise, and continues when that promise is settled."""
    settled: Promise[T] = Promise()

    def go_on(_: object = None) -> None:
        while True:
            try:
                awaited = flow.send(None)
            except StopIteration as end:
                settled.resolve(end.value)
                return
            except Exception as error:
                settled.fail(error)
                return
            except BaseException as error:  # Ctrl-C interrupts the flow: its callers must not wait for ever
                settled.fail(error)
                raise
            if not awaited.done:
                awaited.on_done(go_on)
                return

    go_on()
    return settled


def result_of(flow: Coroutine[Any, Any, T]) -> T:
    """Runs a flow of a synchronous client to its end in one step: its waits block the thread."""
    try:
        flow.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a flow of a synchronous client waits for an event loop")
