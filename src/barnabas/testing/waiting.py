"""The waits of tests: in a thread, on an event loop, and for what another thread does."""

import asyncio
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, TypeVar

from barnabas.testing.checks import require_timeout

__all__ = ["Wait", "is_done_within", "result_within", "wait_for_condition"]

T = TypeVar("T")

_POLL_S: Final = 0.005


def is_done_within(future: "Future[Any]", seconds: float) -> bool:
    """Waits for a future, and returns whether it is done. Its result is read after that: `future.result(seconds)`
    raises the same TimeoutError for a wait that has ended as for a function that failed with one."""
    wait((future,), seconds)
    return future.done()


def result_within(future: "Future[T]", seconds: float) -> T:
    """Waits for a future, and returns its result, also one that came in the last moment. Raises TimeoutError."""
    if not is_done_within(future, seconds):
        raise TimeoutError(f"nothing was done within {seconds:g} s")
    return future.result()


class Wait(Generic[T]):
    """A wait until a condition returns something true. `message` makes the text of the TimeoutError from what the
    condition returned last."""

    def __init__(self, condition: Callable[[], T], timeout: float, message: Callable[[T], str]) -> None:
        require_timeout(timeout)
        self._condition = condition
        self._timeout = timeout
        self._message = message
        self._deadline = time.monotonic() + timeout

    def in_thread(self, name: str = "") -> T:
        """Waits and returns what the condition returned. Raises TimeoutError. `name` is that of the method that the
        test has called: on an event loop, which stands still meanwhile, it warns."""
        pause = threading.Event()
        while not (seen := self._look()):
            if name and (held := _held_loop(name)):
                warnings.warn(held, RuntimeWarning, stacklevel=3)
                self._message = _with_note(self._message, held)
                name = ""
            pause.wait(_POLL_S)
        return seen

    async def on_loop(self) -> T:
        """Waits on the caller's event loop, and returns what the condition returned. Raises TimeoutError."""
        while not (seen := self._look()):  # noqa: ASYNC110 - a condition of any kind tells nobody that it is true
            await asyncio.sleep(_POLL_S)
        return seen

    def _look(self) -> T:
        """Asks the condition, once more when the time is over: the thread may have stood still after the last time."""
        is_over = time.monotonic() > self._deadline
        seen = self._condition()
        if is_over and not seen:
            raise TimeoutError(self._message(seen))
        return seen


def wait_for_condition(condition: Callable[[], Any], timeout: float, what: str | Callable[[], str]) -> Wait[Any]:
    """Returns the wait for a test's own condition, which calls it `what`, or has the whole text from it."""

    def message(seen: object) -> str:
        return f"{what} did not come true within {timeout:g} s: {seen!r}" if isinstance(what, str) else what()

    return Wait(condition, timeout, message)


def _with_note(message: Callable[[T], str], note: str) -> Callable[[T], str]:
    return lambda seen: f"{message(seen)}; {note}"


def _held_loop(name: str) -> str:
    """Returns what stands still while the method waits; empty where no event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return f"{name}() holds up the event loop of its caller, with all clients and tasks on it: await async_{name}()"
