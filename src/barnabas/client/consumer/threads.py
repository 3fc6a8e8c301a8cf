"""What the calls of the synchronous consumer are made of: one thread reads at a time, any of them may close it, and a
KeyboardInterrupt may come between any two steps, so that what was not handed to the application comes again."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from typing import Final, TypeVar

from barnabas.client.consumer.delivered_records import Held
from barnabas.client.consumer.group.rebalance import Notice
from barnabas.client.consumer.reading import CHUNK, Pace, ReadingBase
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.drivers.sync import SyncDriver
from barnabas.connection.promise import Promise
from barnabas.errors import ClientClosed, UsageError
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["Ended", "ThreadedReading"]

T = TypeVar("T")

TURN_S: Final = 0.001
"""How long an application that reads what is in store may keep from turning the network client."""
INTERRUPT_S: Final = 0.05
"""How long a close waits for the thread that polls to come out, at least."""

_log = logging.getLogger("barnabas.consumer")


class ThreadedReading(ReadingBase):
    """See the module."""

    _driver: SyncDriver

    def _init_threads(self) -> None:
        self._reading = threading.Lock()
        """Held by the thread that polls."""
        self._inside: dict[int, int] = {}
        """Threads that are in here, and how deep: a close that they ask for themselves waits until they are out."""
        self._close_asked: tuple[float, bool] | None = None
        self._forked = False
        self._turned_at = float("-inf")

    # --- one thread at a time ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reads(self) -> Iterator[None]:
        """One thread polls at a time."""
        self._check_reader()
        with self._enters(), self._reading:
            yield

    def _check_reader(self) -> None:
        self._check_process()
        if threading.get_ident() in self._inside and self._reading.locked():
            raise UsageError("a consumer cannot be polled from its own callbacks, deserializers and interceptors")

    def _handed(self, read: Callable[[], T], *, ends: bool = False) -> T:
        """What `read` gives to the application. With `ends` a closed consumer is the end of an iteration.

        A KeyboardInterrupt comes after a call or at the beginning of one, so never between what is done last here and
        what the caller does with it if that calls nothing."""
        owed: dict[TopicPartition, OffsetAndMetadata] = {}
        try:
            self._check_reader()
            me, inside = threading.get_ident(), self._inside
            depth = inside.get(me, 0)
            inside[me] = depth + 1  # as _enters does, which costs a poll more than all else here
            try:
                with self._reading:
                    found = read()
                    handing = self._core.handing
                    owed, handing.owed = handing.owed, {}
            except ClientClosed:
                if ends and self._core.closing:
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
            if owed:
                self._core.handing.owed = owed
            raise
        return found

    @contextlib.contextmanager
    def _enters(self) -> Iterator[None]:
        """The thread is inside, so that a signal handler in the middle of it does not wait for locks that it holds."""
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
        """The thread that wanted it in the middle of something is out."""
        asked, self._close_asked = self._close_asked, None
        if asked is not None:
            self._close(*asked)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float | None, limit: int) -> list[AnyRecord]:
        records: list[AnyRecord] = []
        self._collect(records, self._next(timeout), limit)
        if self._core.fetching.wants_turn and not self._driver.owes_turn:
            self._driver.turn()  # what was taken makes room: ask for more while the application works
        if self._core.closing:
            raise ClientClosed("the consumer is closed")
        return records

    def _runs(self) -> Iterator[Iterator[AnyRecord]]:
        """The records of an iteration, as many at a time as it may give without looking up."""
        core = self._core
        pace = Pace()
        with contextlib.suppress(Ended):
            while True:
                held = self._next_held()
                iterator = held.iterator
                while True:
                    core.touched_at = pace.begin()
                    yield islice(iterator, pace.size)
                    if core.attention or not length_hint(iterator):
                        break
                    pace.end()

    def _next(self, timeout: float | None) -> Held | CompletedFetch | None:
        """What is to be read next. Before that the listener hears what it must. None when the time is over."""
        core, driver = self._core, self._driver
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._look()
            if isinstance(found, Notice):
                self._tell(found)
            elif found is not None:
                return found
            else:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                ready = False
                try:
                    with driver.lock:
                        core.enter()
                    ready = driver.wait(core.is_ready, left, may_leave=core.has_little)
                finally:
                    core.waits = False
                    if ready:
                        with driver.lock:
                            found = core.arrived()
                    elif not driver.closed:
                        driver.run(core.leave)
                if not ready:
                    return None
                if found is not None:  # nothing stands between what came and the application
                    if core.fetching.wants_turn and core.has_little():
                        driver.turn_soon()
                    return found

    def _look(self) -> Notice | Held | CompletedFetch | None:
        """What comes next; mostly that is in store, and the client need not turn for each of a thousand records."""
        core = self._core
        now = time.monotonic()
        if now < self._turned_at + TURN_S:
            core.touched_at = now
            with self._driver.lock:
                found = core.glance()
            if found is not None:
                return found
        self._turned_at = now
        return self._driver.ask(core.look)

    def _wait_for_next(self) -> Held | CompletedFetch:
        found = self._next(None)
        assert found is not None, "waiting without end has ended"
        return found

    def _next_held(self) -> Held:
        """Records for an iteration."""
        while True:
            with self._reads():
                try:
                    found = self._wait_for_next()
                    held = found if isinstance(found, Held) else self._decode(found, CHUNK)
                except ClientClosed:
                    if self._core.closing:
                        raise Ended from None
                    raise
                if held is not None:
                    with self._driver.lock:
                        self._core.handing.iterate(held)
                    return held

    def _tell(self, notice: Notice) -> None:
        callback = self._callback_for(notice)
        self._core.told()
        if callback is not None:
            callback(self, notice.partitions)

    def _wait_for(self, promise: Promise[T]) -> T:
        core = self._core
        parting = core.closing  # a listener that is told of the end may still ask
        with self._enters():
            self._driver.wait(lambda: promise.done or core.woken or core.closing is not parting)
            return self._answer(promise, parting)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _close(self, timeout: float, all_done: bool) -> None:
        core, driver = self._core, self._driver
        if driver.closed:
            return
        core.closing = core.attention = True
        driver.interrupt()
        if threading.get_ident() in self._inside:
            self._close_asked = timeout, all_done
            return
        deadline = time.monotonic() + timeout
        has_it = self._reading.acquire(timeout=max(timeout / 2, INTERRUPT_S))
        try:
            self._say_goodbye(deadline, all_done)
        finally:
            driver.close()
            if has_it:
                self._reading.release()

    def _say_goodbye(self, deadline: float, all_done: bool) -> None:
        core, driver = self._core, self._driver

        def wait(promise: Promise[None]) -> None:
            left = max(deadline - time.monotonic(), 0.0)
            driver.wait(lambda: promise.done or not core.can_say_goodbye(), left)

        with contextlib.suppress(ClientClosed):
            wait(driver.run(lambda: core.last_commit(max(deadline - time.monotonic(), 0.0), all_done=all_done)))
            notice = driver.run(core.parting)
            if notice is not None:
                try:
                    self._tell(notice)
                except Exception:
                    _log.exception("on_%s fails while the consumer is closed", notice.kind)
            wait(driver.run(lambda: core.unsubscribe("the consumer is closed")))
            driver.run(core.fetching.close)


class Ended(Exception):
    """The consumer was closed: an iteration is at its end."""
