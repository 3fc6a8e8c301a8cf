"""A result that comes later, without threads and loops: the drivers wait for it, each in its way."""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Promise", "resolved"]

T = TypeVar("T")


class Promise(Generic[T]):
    """Settled once, with a value or an error; callbacks get the promise and are called by whoever settles it."""

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._value: Any = None
        self._callbacks: list[Callable[[Promise[T]], None]] = []

    def resolve(self, value: T) -> None:
        """Nothing happens if it is settled already: an answer may come after its deadline."""
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
        """Call it once settled; at once if that is already so."""
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
        """For flows of the core, which whoever runs them goes on with once it is settled; not for an event loop."""
        if not self.done:
            yield self
        return self.result()

    def result(self) -> T:
        """The value, or raise the error. Only for a settled promise."""
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
