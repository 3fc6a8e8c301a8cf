"""Reads records in tasks of an event loop: one task polls at a time."""

import asyncio
import contextlib
import inspect
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.client.consumer.delivered_records import DecodedRecords
from barnabas.client.consumer.reading import CHUNK, Ended, ReadingBase
from barnabas.client.consumer.rebalance_listener import RebalanceEvent
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.connection.drivers.aio import AioDriver
from barnabas.errors import ClientClosed, UsageError

__all__ = ["TaskReading"]


class TaskReading(ReadingBase):
    _driver: AioDriver

    def _init_tasks(self) -> None:
        self._polling: asyncio.Task[Any] | None = None
        self._begun = False
        """Whether the state machine and its driver exist."""
        self._closed = False

    @abstractmethod
    def _opened(self) -> AioDriver:
        """Returns the driver of this process and of the running loop. Raises ClientClosed."""

    @contextlib.contextmanager
    def _reads(self) -> Iterator[None]:
        driver = self._opened()
        if self._polling:
            raise UsageError("another task polls this consumer, or it is polled from one of its own callbacks")
        self._polling = asyncio.current_task()
        try:
            yield
        finally:
            self._polling = None
            if self._closed and not driver.closed:
                driver.turn_soon()  # a close waits for the end of the read

    async def _next(self, timeout_s: float | None) -> DecodedRecords | CompletedFetch | None:
        """Returns the next records, after the listener has got its events; None when the time is over."""
        state, driver = self._state, self._opened()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        await asyncio.sleep(0)  # a reader that always finds records must let other tasks run
        while True:
            found = driver.run(state.poll)
            if isinstance(found, RebalanceEvent):
                await self._deliver_event(found)
            elif found is not None:
                return found
            else:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                try:
                    driver.run(state.begin_wait)
                    if not await driver.wait(state.is_ready, left):
                        return None
                finally:
                    state.is_waiting = False
                    if not driver.closed:
                        driver.run(state.end_wait)

    async def _wait_for_next(self) -> DecodedRecords | CompletedFetch:
        try:
            found = await self._next(None)
        except ClientClosed:
            if self._closed:
                raise Ended from None
            raise
        assert found is not None, "waiting without end has ended"
        return found

    async def _next_decoded(self) -> DecodedRecords | None:
        """Returns the next records for an iteration, None once the consumer is closed."""
        decoded = None
        while decoded is None:
            if self._closed:
                return None
            try:
                with self._reads():
                    found = await self._wait_for_next()
                    decoded = found if isinstance(found, DecodedRecords) else self._decode(found, CHUNK)
            except Ended:
                return None
        self._state.delivered.begin_iteration(decoded)
        return decoded

    async def _wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        return await self._driver.wait(done, timeout_s)

    async def _deliver_event(self, event: RebalanceEvent) -> None:
        callback = self._listener.callback_for(event)
        self._state.event_delivered()
        if callback is not None:
            await self._call(callback, self, event.partitions)

    async def _call(self, function: Callable[..., Any], *args: Any) -> None:
        result = function(*args)
        if inspect.isawaitable(result):
            await result

    async def _close(self, timeout_s: float, all_delivered: bool) -> None:
        already, self._closed = self._closed, True
        if already or not self._begun or self._driver.closed:
            return
        driver = self._driver
        deadline = time.monotonic() + timeout_s
        try:
            self._state.closing = self._state.needs_poll = True
            driver.run(lambda: None)
            try:
                if self._polling is not asyncio.current_task():  # that one calls from a callback of its poll
                    await driver.wait(lambda: self._polling is None, timeout_s / 2)
            except asyncio.CancelledError:  # also by `process`, of which a handler closes the consumer
                await self._leave(time.monotonic(), all_delivered)
                raise
            await self._leave(deadline, all_delivered)
        finally:
            driver.close()
