"""Reads records in threads: one thread polls at a time, and any thread may close the consumer.

A KeyboardInterrupt may come between any two steps. Records that were not delivered to the application because of it are
delivered again by the next poll.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from typing import Any, Final, TypeVar

from barnabas.client.consumer.delivered_records import DecodedRecords
from barnabas.client.consumer.reading import CHUNK, Ended, Pace, ReadingBase
from barnabas.client.consumer.rebalance_listener import RebalanceEvent
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.flow import result_of
from barnabas.connection.promise import Promise
from barnabas.errors import ClientClosed, UsageError
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["ThreadedReading"]

T = TypeVar("T")

TURN_S: Final = 0.001
"""The time for which an application that reads buffered records may delay the network client's turn."""
INTERRUPT_S: Final = 0.05
"""The least time that a close waits for the thread that polls to leave its call."""


class ThreadedReading(ReadingBase):
    _driver: SyncDriver

    def _init_threads(self) -> None:
        self._reading = threading.Lock()
        """The lock that the polling thread holds."""
        self._inside: dict[int, int] = {}
        """The threads that are in calls, each with the depth of nested calls. If such a thread closes the consumer (in
        a callback or a signal handler), the close waits for the end of its call, because the thread may hold locks."""
        self._close_asked: tuple[float, bool] | None = None
        self._first_close: dict[None, object] = {}
        """A token of the first close, which alone closes the driver."""
        self._forked = False
        self._turned_at = float("-inf")

    async def _wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        return self._driver.wait(done, timeout_s)

    async def _call(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)

    async def _deliver_event(self, event: RebalanceEvent) -> None:
        self._call_listener(event)

    def _call_listener(self, event: RebalanceEvent) -> None:
        callback = self._listener.callback_for(event)
        self._state.event_delivered()
        if callback is not None:
            callback(self, event.partitions)

    # --- one thread at a time ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reads(self) -> Iterator[None]:
        self._check_reader()
        with self._enters(), self._reading:
            yield

    def _check_reader(self) -> None:
        self._check_process()
        if threading.get_ident() in self._inside and self._reading.locked():
            raise UsageError("a consumer cannot be polled from its own callbacks, deserializers and interceptors")

    def _check_open(self) -> None:
        """Raises ClientClosed also while another thread still closes the consumer, and holds the lock of the reader."""
        if self._state.closing:
            raise ClientClosed("the consumer is closed")

    def _deliver(self, read: Callable[[], T], *, ends: bool = False) -> T:
        """Returns the result of `read` to the application. With `ends` a closed consumer is the end of an iteration.

        A KeyboardInterrupt comes after a call of a C function or at the beginning of a function, so never between the
        last steps here and the caller's use of the result if that calls nothing."""
        undelivered: dict[TopicPartition, OffsetAndMetadata] = {}
        try:
            self._check_reader()
            me, inside = threading.get_ident(), self._inside
            depth = inside.get(me, 0)
            inside[me] = depth + 1  # the same as _enters, whose call would cost more than all other steps here
            try:
                self._check_open()
                with self._reading:
                    found = read()
                    delivered = self._state.delivered
                    undelivered, delivered.rollback_positions = delivered.rollback_positions, {}
            except ClientClosed:
                if ends and self._state.closing:
                    raise Ended from None
                raise
            finally:
                if depth:
                    inside[me] = depth
                else:
                    del inside[me]
                    if self._close_asked is not None:
                        self._close_as_asked()
        except BaseException:
            if undelivered:
                self._state.delivered.rollback_positions = undelivered
            raise
        return found

    @contextlib.contextmanager
    def _enters(self) -> Iterator[None]:
        me = threading.get_ident()
        depth = self._inside.get(me, 0)
        self._inside[me] = depth + 1
        try:
            yield
        finally:
            if depth:
                self._inside[me] = depth
            else:
                del self._inside[me]
                if self._close_asked is not None:
                    self._close_as_asked()

    def _close_as_asked(self) -> None:
        """Closes the consumer, now that the thread that asked for the close has left its call."""
        asked, self._close_asked = self._close_asked, None
        if asked is not None:
            self._close(*asked)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float | None, limit: int) -> list[AnyRecord]:
        records: list[AnyRecord] = []
        self._collect(records, self._next(timeout), limit)
        if self._state.fetch_requests.wants_turn and not self._driver.background_turn_due:
            self._driver.turn()  # the poll has made room: fetch more while the application works
        self._check_open()
        return records

    def _runs(self) -> Iterator[Iterator[AnyRecord]]:
        """Yields the records of an iteration in runs, each as long as the iteration may go on without a check."""
        state = self._state
        pace = Pace()
        with contextlib.suppress(Ended):
            while True:
                decoded = self._next_decoded()
                iterator = decoded.iterator
                while True:
                    state.polled_at = pace.begin()
                    yield islice(iterator, pace.size)
                    if state.needs_poll or not length_hint(iterator):
                        break
                    pace.end()

    def _next(self, timeout: float | None) -> DecodedRecords | CompletedFetch | None:
        """Returns the next records, after the listener has got its events; None when the time is over."""
        state, driver = self._state, self._driver
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._poll_state()
            if isinstance(found, RebalanceEvent):
                self._call_listener(found)
            elif found is not None:
                return found
            else:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                ready = False
                try:
                    with driver.lock:
                        state.begin_wait()
                    ready = driver.wait(state.is_ready, left, may_leave=state.has_little)
                finally:
                    state.is_waiting = False
                    if ready:
                        with driver.lock:
                            found = state.end_wait_with_records()
                    elif not driver.closed:
                        driver.run(state.end_wait)
                if not ready:
                    return None
                if found is not None:  # the listener has no event before these records
                    if state.fetch_requests.wants_turn and state.has_little():
                        driver.turn_soon()
                    return found

    def _poll_state(self) -> RebalanceEvent | DecodedRecords | CompletedFetch | None:
        """Polls the state machine. Usually its buffer has records, which need no turn of the network client."""
        state = self._state
        now = time.monotonic()
        if now < self._turned_at + TURN_S:
            state.polled_at = now
            with self._driver.lock:
                found = state.poll_buffer()
            if found is not None:
                return found
        self._turned_at = now
        return self._driver.run_before_wait(state.poll)

    def _wait_for_next(self) -> DecodedRecords | CompletedFetch:
        found = self._next(None)
        assert found is not None, "waiting without end has ended"
        return found

    def _next_decoded(self) -> DecodedRecords:
        """Returns the next records for an iteration."""
        try:
            while True:
                self._check_open()
                with self._reads():
                    found = self._wait_for_next()
                    decoded = found if isinstance(found, DecodedRecords) else self._decode(found, CHUNK)
                    if decoded is not None:
                        with self._driver.lock:
                            self._state.delivered.begin_iteration(decoded)
                        return decoded
        except ClientClosed:
            if self._state.closing:
                raise Ended from None
            raise

    def _wait_for(self, promise: Promise[T]) -> T:
        state = self._state
        was_closing = state.closing  # the listener may call the consumer while that is closed
        with self._enters():
            self._driver.wait(lambda: promise.done or state.woken or state.closing is not was_closing)
            return self._answer(promise, was_closing)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _close(self, timeout: float, all_delivered: bool) -> None:
        state, driver = self._state, self._driver
        if driver.closed:
            return
        if threading.get_ident() in self._inside:
            state.closing = state.needs_poll = True
            driver.wakeup()
            self._close_asked = self._close_asked or (timeout, all_delivered)
            return
        me, has_lock = object(), False
        try:
            if self._first_close.setdefault(None, me) is not me:
                return
            state.closing = state.needs_poll = True
            driver.wakeup()
            deadline = time.monotonic() + timeout
            has_lock = self._reading.acquire(timeout=max(timeout / 2, INTERRUPT_S))
            result_of(self._leave(deadline, all_delivered))
        finally:
            if self._first_close.get(None) is me:
                driver.close()
            if has_lock:
                self._reading.release()
