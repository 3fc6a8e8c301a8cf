"""Promises of results that come later, without threads and event loops: each driver waits for them in its own way."""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Promise", "resolved"]

T = TypeVar("T")


class Promise(Generic[T]):
    """A result that is settled once, with a value or an error. Settling it calls the callbacks with the promise."""

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._value: Any = None
        self._callbacks: list[Callable[[Promise[T]], None]] = []

    def resolve(self, value: T) -> None:
        """Settles the promise with a value. Does nothing if it is settled already: a response may come after its
        deadline."""
        if not self.done:
            self._value = value
            self._settle()

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self.error = error
            self._settle()

    def _settle(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def on_done(self, callback: "Callable[[Promise[T]], None]") -> None:
        """Calls `callback` when the promise is settled, or at once if it is already."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settled(self) -> "Promise[None]":
        """Returns a promise that is resolved once this one is settled, with a value or an error."""
        settled: Promise[None] = Promise()
        self.on_done(lambda _: settled.resolve(None))
        return settled

    def __await__(self) -> "Generator[Promise[T], None, T]":
        """Waits for the result in a flow (see `settle`), not in a coroutine of an event loop."""
        if not self.done:
            yield self
        return self.result()

    def result(self) -> T:
        """Returns the value or raises the error of a settled promise."""
        assert self.done, "the promise is not settled: wait for it with a driver"
        if self.error is not None:
            raise self.error
        value: T = self._value
        return value


def resolved(value: T) -> Promise[T]:
    """Returns a promise that is settled already."""
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise
