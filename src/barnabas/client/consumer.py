"""The synchronous consumer. `barnabas.aio.Consumer` is the same for asyncio."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.client.consumer_base import (
    ConsumerBase,
    OffsetAndTimestamp,
    OffsetsArgument,
    Partitions,
    at_times,
    begin,
    end,
)
from barnabas.client.core.completed_fetch import CompletedFetch
from barnabas.client.core.consumer.handing import Held
from barnabas.client.core.consumer.rebalancing import ASSIGNED, Notice
from barnabas.client.core.offset_messages import OffsetAndMetadata
from barnabas.client.core.promise import Promise
from barnabas.client.core.views import PartitionView
from barnabas.client.drivers.sync import SyncDriver
from barnabas.client.errors import ClientClosed, WokenUp
from barnabas.errors import BarnabasError, UsageError
from barnabas.records.consumer_kernel import ConsumerRecord
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Consumer"]

T = TypeVar("T")

CHUNK: Final = 1000
"""Records that are decoded at once for an iteration."""
RUN_MAX: Final = 128
"""Records that an iteration gives without looking whether anything else is to be done."""
RUN_FAST_S: Final = 0.002
RUN_SLOW_S: Final = 0.05
TURN_S: Final = 0.001
"""How long an application that reads what is in store may keep from turning the engine."""
CLOSE_TIMEOUT_S: Final = 5.0

_log = logging.getLogger("barnabas.consumer")


class Consumer(ConsumerBase):
    """Reads records. `Consumer("topic", bootstrap_servers="host:9092", group_id="g", auto_offset_reset="earliest")`, or
    with a dict of Kafka's names: `Consumer({"bootstrap.servers": "host:9092", "group.id": "g"}, "topic")`.

    Iterate over it, or `poll`. One thread reads at a time; `wakeup`, `close`, `health`, `pause`, `commit` and so on may
    be called by any. Close it, or use it as a context manager: closing commits what was read and leaves the group.
    After a fork the child has a consumer of its own.
    """

    _driver: SyncDriver

    def __init__(self, *topics: Any, **named: Any) -> None:
        """Topics or a compiled pattern to subscribe to, settings by keyword or in a dict, and `on_assigned`,
        `on_revoked`, `on_lost` as for `subscribe`. Raises UsageError for what does not exist or does not fit."""
        self._init_threads()
        self._set_up(topics, named)

    def _init_threads(self) -> None:
        self._reading = threading.Lock()
        """Held by the thread that polls."""
        self._inside: dict[int, int] = {}
        """Threads that are in here, and how deep: a close that they ask for themselves waits until they are out."""
        self._close_asked: tuple[float, bool] | None = None
        self._forked = False
        self._turned_at = float("-inf")

    def _open(self) -> None:
        core = self._core = self._new_core()
        self._driver = SyncDriver(core.engine, ssl_context=self._tls, on_fork=self._left_behind, name="consumer")
        if self._subscribed is not None:
            self._driver.run(self._subscribed)

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (`max.poll.records`). Waits `timeout` seconds for the first, None: as
        long as it takes; an empty list if none came.

        The records count as done when the next poll begins: a commit by itself leaves them out before.
        """
        limit = self.settings.max_poll_records if max_records is None else max_records
        records: list[ConsumerRecord] = []
        with self._reads():
            found = self._next(timeout)
            while found is not None:
                more = self._return_some(found, limit - len(records), told=not records)
                if more is None:
                    break  # what is wrong comes next: the next poll raises it
                records += more
                if len(records) >= limit:
                    break
                with self._driver.lock:
                    found = self._core.more_of_it() if records else self._core.more()
            self._driver.run(_nothing)  # what was taken makes room: ask for more while the application works
        return records

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record, without end; it ends when the consumer is closed. A record counts as done when the next one
        is asked for."""
        core = self._core
        clock = time.monotonic
        size = 1
        with contextlib.suppress(_Ended):
            while True:
                held = self._next_held()
                iterator = held.iterator
                while True:
                    before = core.touched_at = clock()
                    yield from islice(iterator, size)
                    if core.attention or not length_hint(iterator):
                        break
                    took = clock() - before
                    if took < RUN_FAST_S:
                        size = min(2 * size, RUN_MAX)
                    elif took > RUN_SLOW_S:
                        size = 1

    def batches(self) -> Iterator[list[ConsumerRecord]]:
        """Lists of records, each of one partition, without end. A list counts as done when the next one is asked
        for."""
        with contextlib.suppress(_Ended):
            while True:
                with self._reads(ends=True):
                    records = self._return_some(self._wait_for_next(), CHUNK, told=True)
                if records:
                    yield records

    def arrow(self, *, headers: bool = False) -> "Iterator[pyarrow.Table]":
        """Arrow tables, each of one partition and about a megabyte, without end: topic, partition, offset, timestamp,
        timestamp_type, key, value and, if asked for, headers. Keys and values are as they were sent: deserializers do
        not see them. Needs pyarrow."""
        with contextlib.suppress(_Ended):
            while True:
                with self._reads(ends=True):
                    table = self._read_table(self._wait_for_next(), headers)
                if table is not None:
                    yield table

    # --- what reading is made of ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reads(self, *, ends: bool = False) -> Iterator[None]:
        """One thread polls at a time. With `ends` a closed consumer is the end of an iteration."""
        self._check_process()
        if threading.get_ident() in self._inside and self._reading.locked():
            raise UsageError("a consumer cannot be polled from its own callbacks, deserializers and interceptors")
        with self._enters():
            self._reading.acquire()
            try:
                yield
            except ClientClosed:
                if ends and self._core.closing:
                    raise _Ended from None
                raise
            finally:
                self._reading.release()

    @contextlib.contextmanager
    def _enters(self) -> Iterator[None]:
        """The thread is inside, so that a signal handler in the middle of it does not wait for locks that it holds."""
        me = threading.get_ident()
        self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                asked, self._close_asked = self._close_asked, None
                if asked is not None:
                    self._close(*asked)

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
                driver.run(core.enter)
                try:
                    if not driver.wait(core.is_ready, left):
                        return None
                finally:
                    if not driver.closed:
                        driver.run(core.leave)

    def _look(self) -> Notice | Held | CompletedFetch | None:
        """What comes next; mostly that is in store, and the engine need not turn for each of a thousand records."""
        core = self._core
        now = time.monotonic()
        if now < self._turned_at + TURN_S:
            core.touched_at = now
            with self._driver.lock:
                found = core.glance()
            if found is not None:
                return found
        self._turned_at = now
        return self._driver.run(core.look)

    def _wait_for_next(self) -> Held | CompletedFetch:
        found = self._next(None)
        assert found is not None, "waiting without end has ended"
        return found

    def _next_held(self) -> Held:
        """Records for an iteration."""
        while True:
            with self._reads(ends=True):
                found = self._wait_for_next()
                held = found if isinstance(found, Held) else self._decode(found, CHUNK)
                if held is not None:
                    with self._driver.lock:
                        self._core.handing.iterate(held)
                    return held

    def _return_some(self, found: Held | CompletedFetch, limit: int, *, told: bool) -> list[ConsumerRecord] | None:
        """Up to `limit` records. What is wrong with them is raised if `told`; otherwise None, and the next time."""
        try:
            held = found if isinstance(found, Held) else self._decode(found, limit)
        except BarnabasError:
            if told:
                raise
            return None
        if held is None:
            return []
        with self._driver.lock:
            return self._core.handing.return_some(held, limit)

    def _decode(self, fetch: CompletedFetch, limit: int) -> Held | None:
        """Without the lock: deserializers are the application's, and may take their time."""
        records: list[ConsumerRecord] = []
        ended = False
        try:
            records = fetch.read(limit)
            ended = len(records) < limit
            for interceptor in self.settings.interceptor_classes:
                if records and hasattr(interceptor, "on_consume"):
                    records = interceptor.on_consume(records)
        finally:
            with self._driver.lock:
                held = self._core.take(fetch, records, ended=ended)
        return held

    def _read_table(self, found: Held | CompletedFetch, headers: bool) -> "pyarrow.Table | None":
        import pyarrow

        if isinstance(found, Held):
            raise UsageError("an iteration over records has stopped in the middle; finish it before you read tables")
        batch = None
        try:
            batch = found.read_arrow(headers=headers)
        finally:
            with self._driver.lock:
                counts = self._core.took(found, ended=batch is None)
        return pyarrow.Table.from_batches([batch]) if counts and batch is not None else None

    def _tell(self, notice: Notice) -> None:
        callback = self._listener.for_notice(notice)
        if callback is not None and (notice.partitions or notice.kind == ASSIGNED):
            callback(self, notice.partitions)

    def wakeup(self) -> None:
        """Let the thread that waits in here, or the next one that would, raise WokenUp. May be called from any thread
        and from signal handlers."""
        self._core.woken = self._core.attention = True
        self._driver.interrupt()

    # --- positions and commits --------------------------------------------------------------------------------------

    def _wait_for(self, promise: Promise[T]) -> T:
        core = self._core
        with self._enters():
            self._driver.wait(lambda: promise.done or core.woken)
            if not promise.done:
                core.woken = False
                raise WokenUp("wakeup was called")
        return promise.result()

    def commit(self, offsets: OffsetsArgument | None = None, timeout: float | None = None) -> None:
        """Commit what the application has got (the record at hand included), a record with all before it, or the next
        offsets to read by partition. What passes is tried again for `timeout` seconds (`default.api.timeout.ms`).

        Raises RebalanceInProgress (poll, then commit again), CommitFailed (others may have the partitions), and what
        else the coordinator says.
        """
        self._wait_for(self._ask_commit(offsets, self._timeout(timeout)))

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: Callable[[Any, Any], object] | None = None
    ) -> None:
        """Commit without waiting, and without a second try. `callback(offsets, error)` is called by any thread that
        works for the consumer; without one failures are logged."""
        self._commit_async(offsets, callback)

    def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None for nothing."""
        return self._wait_for(self._ask_committed(partitions, self._timeout(timeout)))

    def position(self, partition: "TopicPartition | tuple[str, int]", timeout: float | None = None) -> int:
        """The offset behind what the application has got. Waits until it is known where to begin."""
        return self._wait_for(self._ask_position(partition, self._timeout(timeout)))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if there is none so new."""
        return at_times(self._wait_for(self._ask_offsets(timestamps, self._timeout(timeout))))

    def beginning_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The first offsets that there are."""
        found = self._wait_for(self._ask_offsets(begin(partitions), self._timeout(timeout)))
        return {where: each.offset for where, each in found.items()}

    def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offsets behind the last records (with `read_committed`: behind the last that can be read)."""
        found = self._wait_for(self._ask_offsets(end(partitions), self._timeout(timeout)))
        return {where: each.offset for where, each in found.items()}

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions, by number. Raises TopicNotFound, OperationTimedOut."""
        view = self._wait_for(self._run(lambda: self._core.engine.topic(topic, self._timeout(timeout))))
        return [view.partitions[index] for index in sorted(view.partitions)]

    # --- the end ----------------------------------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Give everything up, and leave the group."""
        self._check_process()
        with self._enters():
            notice = self._driver.run(self._core.parting)
            try:
                if notice is not None:
                    self._tell(notice)
            finally:
                self._subscribed = None
                self._driver.run(self._core.unsubscribe)

    def close(self, timeout: float | None = None) -> None:
        """Commit what was read (with `enable.auto.commit`), leave the group, end; all that within `timeout` seconds
        (5). Whoever waits in here hears ClientClosed at once; iterations end. What was handed out counts as done.

        With 0 nothing is waited for, but what has to be said is said. A broker that cannot be reached is not waited
        for. Calling it again does nothing. Signal handlers may call it.
        """
        self._close(CLOSE_TIMEOUT_S if timeout is None else timeout, True)

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
        has_it = self._reading.acquire(timeout=max(timeout, 0.1))
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

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes. What was at hand when an exception ended the block is not committed; after Ctrl-C nothing is waited
        for."""
        stopped = kind is not None and not issubclass(kind, Exception)
        self._close(0.0 if stopped else CLOSE_TIMEOUT_S, kind is None)

    # --- fork -------------------------------------------------------------------------------------------------------

    def _left_behind(self) -> None:
        """In the child of a fork: connections, membership and positions are the parent's."""
        self._init_threads()
        self._forked = True

    def _check_process(self) -> None:
        if not self._forked:
            return
        if self.settings.group_instance_id is not None:
            raise ClientClosed(
                "the consumer belongs to the parent process; a static member (group.instance.id) cannot be in two"
            )
        self._forked = False
        self._open()


class _Ended(Exception):
    """The consumer was closed: an iteration is at its end."""


def _nothing() -> None:
    """For a turn of the driver without anything else."""
