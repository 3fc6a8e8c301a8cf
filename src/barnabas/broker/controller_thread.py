"""Gives the event loop this broker's controller, which runs on a thread of its own.

The registry's file may be locked by another process, and each write to it ends with an fsync: neither may hold up the
requests of clients.

On a full disk the calls run on the event loop, after those that the thread has begun. The registry's write then uses
space of the reserve, and no record may be appended meanwhile, which would take that space.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.controller.controller import Controller
from barnabas.errors import BarnabasError, RequestTimedOut
from barnabas.thread_pool import ThreadPool

__all__ = ["ControllerThread"]

CALLS_MAX: Final = 1000
"""The most calls that wait for the thread or run there. Connections take one request to the controller at a time."""
WAIT_MAX_S: Final = 5.0
"""A call whose turn comes later than this is not made: its client asks again, or has given up. SQLite waits as long for
the lock of its file, so a call takes some ten seconds at most."""

T = TypeVar("T")


class ControllerThread:
    """Runs calls of the controller one after the other, in their order. Used on the event loop's thread."""

    def __init__(
        self, controller: Controller, loop: asyncio.AbstractEventLoop, *, runs_inline: Callable[[], bool]
    ) -> None:
        """`runs_inline` says whether the next call must run on the event loop."""
        self._controller = controller
        self._loop = loop
        self._runs_inline = runs_inline
        self._executor = ThreadPool(1, "barnabas-controller")
        self._calls = 0
        """The number of calls that wait for the thread, or run there."""
        self._in_check = False
        """Whether one of them is a check."""
        self._check_again = False
        self._last_call: asyncio.Future[Any] | None = None
        """The call that was given to the thread last; None if all are done."""
        self._is_shut_down = False
        self._in_call = threading.Lock()
        """Held by a call on either thread. Only `call_from` can make two of them meet."""
        self.until_known: Callable[[], Awaitable[None]] | None = None
        """Returns when the other brokers have the present image. None while this broker is not their controller."""

    async def call(self, action: Callable[[Controller], T], *, until_known: bool = True) -> T:
        """Returns the result of `action`, after the images that it published, and `until_known` when the other brokers
        have these. Raises the KafkaError of `action`, and RequestTimedOut if its turn did not come in time: then
        nothing was changed."""
        result = await self._call(action)
        if until_known and self.until_known is not None:
            await self.until_known()
        return result

    async def _call(self, action: Callable[[Controller], T]) -> T:
        while self._runs_inline():
            last = self._last_call
            if last is None:
                with self._in_call:
                    return action(self._controller)
            await asyncio.wait([last])
        if self._calls >= CALLS_MAX:
            raise RequestTimedOut(f"{CALLS_MAX} requests wait for the controller: the registry is slow or locked")
        results: list[T] = []
        error = await self._submit(partial(self._error_of, action, results, time.monotonic() + WAIT_MAX_S))
        if error is not None:
            raise error
        return results[0]

    def _error_of(
        self, action: Callable[[Controller], T], results: list[T], deadline: float, controller: Controller
    ) -> BarnabasError | None:
        """Appends the result of an action, or returns its error: a future with an exception that nobody takes, because
        the broker stops meanwhile, would be logged as a bug."""
        if self._is_shut_down:
            return RequestTimedOut("this broker stops: the request was not begun, and nothing was changed")
        if time.monotonic() > deadline:
            return RequestTimedOut("the registry is slow or locked: the request was not begun, and nothing was changed")
        try:
            results.append(action(controller))
        except BarnabasError as error:
            return error
        return None

    def check_if_unread(self) -> None:
        """Has the controller check the registry if that did not respond at the last time."""
        if self._controller.is_unread:
            self.check()

    def check(self) -> None:
        """Has the controller check the registry and the brokers. While a check is under way, one more follows it."""
        asked = time.monotonic()
        if not self._calls and self._runs_inline():
            with self._in_call:
                self._controller.check(asked)
        elif self._in_check:
            self._check_again = True
        else:
            self._in_check = True
            self._submit(lambda controller: controller.check(asked)).add_done_callback(self._check_done)

    def _submit(self, action: Callable[[Controller], T]) -> "asyncio.Future[T]":
        self._calls += 1
        done = self._loop.run_in_executor(self._executor, self._locked, action)
        self._last_call = done
        done.add_done_callback(self._call_done)
        return done

    def _locked(self, action: Callable[[Controller], T]) -> T:
        with self._in_call:
            return action(self._controller)

    def call_from(self, action: Callable[[Controller], T]) -> T:
        """Makes a call from any thread but the event loop's, which may stand still, and returns its result. Raises what
        `action` raises."""
        return self._executor.submit(self._locked, action).result()

    def _call_done(self, done: object) -> None:
        self._calls -= 1
        if self._last_call is done:
            self._last_call = None

    def _check_done(self, done: "asyncio.Future[None]") -> None:
        self._in_check = False
        if self._check_again and not self._is_shut_down:
            self._check_again = False
            self.check()
        done.result()  # an error is a bug, which the loop's exception handler logs

    def publish(self, subscriber: Callable[[Any], None]) -> Callable[[Any], None]:
        """Returns a function that calls `subscriber` on the event loop: at once there, or soon from the controller's
        thread."""
        loop, loop_thread = self._loop, threading.get_ident()

        def on_change(change: Any) -> None:
            if threading.get_ident() == loop_thread:
                subscriber(change)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(subscriber, change)

        return on_change

    def shutdown(self) -> None:
        """Waits for the call under way; those that wait are not made. No method may be called afterwards."""
        self._is_shut_down = True
        self._executor.shutdown(wait=True)
