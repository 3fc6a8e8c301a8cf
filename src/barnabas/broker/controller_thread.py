"""Gives the event loop this broker's controller, which runs on a thread of its own.

The registry's file may be locked by another process, and each write to it ends with an fsync: neither may hold up the
requests of clients.

On a full disk the calls run on the event loop. The registry's write then uses space of the reserve, and no record may
be appended meanwhile, which would take that space.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from barnabas.controller.controller import Controller
from barnabas.errors import KafkaError, RequestTimedOut

__all__ = ["ControllerThread"]

CALLS_MAX: Final = 1000
"""The most calls that wait for the thread or run there. Connections take one request to the controller at a time."""

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
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="barnabas-controller")
        self._calls = 0
        """The number of calls that wait for the thread, or run there."""
        self._in_heartbeat = False
        """Whether one of them is a heartbeat."""

    async def call(self, action: Callable[[Controller], T]) -> T:
        """Returns the result of `action`, after the images that it published. Raises the error of `action`, and
        RequestTimedOut if too many calls wait."""
        if not self._calls and self._runs_inline():
            return action(self._controller)
        if self._calls >= CALLS_MAX:
            raise RequestTimedOut(f"{CALLS_MAX} requests wait for the controller: the registry is slow or locked")
        results: list[T] = []
        error = await self._submit(lambda controller: _error_of(action, controller, results))
        if error is not None:
            raise error
        return results[0]

    def heartbeat(self) -> None:
        """Has the controller renew the registration and load changes. Does nothing while the heartbeat before it waits:
        the registry is slow or locked."""
        if not self._calls and self._runs_inline():
            self._controller.heartbeat()
        elif not self._in_heartbeat:
            self._in_heartbeat = True
            self._submit(lambda controller: controller.heartbeat()).add_done_callback(self._heartbeat_done)

    def _submit(self, action: Callable[[Controller], T]) -> "asyncio.Future[T]":
        self._calls += 1
        done = self._loop.run_in_executor(self._executor, action, self._controller)
        done.add_done_callback(self._call_done)
        return done

    def _call_done(self, _: object) -> None:
        self._calls -= 1

    def _heartbeat_done(self, done: "asyncio.Future[None]") -> None:
        self._in_heartbeat = False
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
        """Waits for the calls under way. No method may be called afterwards."""
        self._executor.shutdown(wait=True)


def _error_of(action: Callable[[Controller], T], controller: Controller, results: list[T]) -> KafkaError | None:
    """Appends the result of an action, or returns its error: a future with an exception that nobody takes, because the
    broker stops meanwhile, would be logged as a bug."""
    try:
        results.append(action(controller))
    except KafkaError as error:
        return error
    return None
