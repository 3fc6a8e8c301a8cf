"""The asyncio consumer, `barnabas.aio.Consumer`."""

import asyncio
import contextlib
import inspect
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial, wraps
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from barnabas.client.arguments import seconds, seconds_or_none
from barnabas.client.consumer.calls import ConsumerCalls
from barnabas.client.consumer.delivered_records import DecodedRecords
from barnabas.client.consumer.front_base import CLOSE_TIMEOUT_S
from barnabas.client.consumer.processing.processor import Handler, OnError, Processor
from barnabas.client.consumer.processing.tasks import TaskPool
from barnabas.client.consumer.reading import CHUNK, Pace, ReadingBase
from barnabas.client.consumer.rebalance_listener import RebalanceEvent
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.flow import settle
from barnabas.errors import ClientClosed, UsageError
from barnabas.records.consumer_record import ConsumerRecord, K, V

if TYPE_CHECKING:
    import re

    import pyarrow

    from barnabas.client.settings.keywords import ConsumerKeywords

__all__ = ["Consumer"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    call: Callable[Concatenate[ConsumerCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Consumer[Any, Any]", P], Coroutine[Any, Any, T]]:
    """Makes of a call a method of the loop."""

    @wraps(call)
    async def method(self: "Consumer[Any, Any]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        promise = self._run(lambda: settle(call(self._calls, *args, **kwargs)))
        core = self._core
        was_closing = core.closing  # the listener may call the consumer while that is closed
        await self._wait(lambda: promise.done or core.woken or core.closing is not was_closing)
        return self._answer(promise, was_closing)

    return method


class Consumer(ReadingBase, Generic[K, V]):
    """Reads the records of topics, from an event loop: iterate over it, or await `poll`.

        async with barnabas.aio.Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Arguments and names are those of `barnabas.Consumer`; what takes time is to be awaited, and the callbacks of a
    subscription may be coroutine functions. A cancelled call takes no record along; a cancelled commit may still have
    its effect. `async with` closes it: that commits what was read and leaves the group.
    """

    _driver: AioDriver | None = None

    def __init__(
        self,
        *topics: "str | re.Pattern[str] | Mapping[str, Any]",
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **named: "Unpack[ConsumerKeywords]",
    ) -> None:
        """Belongs to the loop that runs, or to that of its first call. Raises UsageError for what does not exist or
        does not fit."""
        self._polling = False
        self._closed = False
        self._pid = os.getpid()
        self._set_up(topics, {**named, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer})

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # no loop runs yet: it connects with the first call
            asyncio.get_running_loop()
            self._begin()

    def _begin(self) -> AioDriver:
        core = self._core = self._new_core()
        driver = self._driver = AioDriver(core.client, ssl_context=self._tls, name="consumer")
        if self._subscribed is not None:
            try:
                driver.run(self._subscribed)
            except BaseException:
                driver.close()
                raise
        return driver

    def _check_process(self) -> None:
        self._opened()

    def _opened(self) -> AioDriver:
        if self._closed and (self._driver is None or self._driver.closed):
            raise ClientClosed("the consumer is closed")  # not while it is being closed: its listener may commit
        if os.getpid() != self._pid:
            self._check_not_static()
            self._pid, self._driver = os.getpid(), None
        return self._driver or self._begin()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> "list[ConsumerRecord[K, V]]":
        """The next records, at most `max_records` (`max.poll.records`). Waits `timeout` seconds for the first, None: as
        long as it takes; an empty list if none came.

        The records count as done when the next poll begins: a commit by itself leaves them out before.
        """
        limit = self._poll_limit(timeout, max_records)
        records: list[ConsumerRecord[K, V]] = []
        with self._reads():
            self._collect(records, await self._next(timeout), limit)
            self._opened().turn_soon()  # what was taken makes room: ask for more while the application works
        self._core.delivered.rollback_positions = {}
        return records

    async def poll_batch(self, timeout: float | None = None) -> "RecordBatch[K, V] | None":
        """See `barnabas.Consumer.poll_batch`."""
        seconds_or_none("timeout", timeout)
        with self._reads():
            found = await self._next(timeout)
            batch = None if found is None else self._read_batch(found)
            self._opened().turn_soon()  # as poll does
        self._core.delivered.rollback_positions = {}
        return batch

    async def __aiter__(self) -> "AsyncIterator[ConsumerRecord[K, V]]":
        """Record by record, without end; it ends when the consumer is closed. A record counts as done when the next one
        is asked for."""
        pace = Pace()
        while (decoded := await self._next_decoded()) is not None:
            core, iterator = self._core, decoded.iterator
            while True:
                core.polled_at = pace.begin()
                for record in islice(iterator, pace.size):
                    yield record
                if core.needs_poll or not length_hint(iterator):
                    break
                if pace.end():
                    await asyncio.sleep(0)  # heartbeats must go out while records are worked on without a pause

    async def batches(self) -> "AsyncIterator[RecordBatch[K, V]]":
        """Batches of records, each of one partition and some 512 KiB, without end: sequences whose records are made
        when they are touched; see RecordBatch. A batch counts as done when the next one is asked for."""
        while True:
            try:
                with self._reads():
                    batch = self._read_batch(await self._wait_for_next())
            except _Ended:
                return
            if batch is not None:
                self._core.delivered.rollback_positions = {}
                yield batch

    async def arrow(self, *, headers: bool = False) -> "AsyncIterator[pyarrow.Table]":
        """See `barnabas.Consumer.arrow`."""
        while True:
            try:
                with self._reads():
                    table = self._read_table(await self._wait_for_next(), headers)
            except _Ended:
                return
            if table is not None:
                self._core.delivered.rollback_positions = {}
                yield table

    async def process(
        self,
        handler: Handler,
        workers: int = 4,
        *,
        ordered_by: str = "key",
        on_error: OnError | None = None,
        limit: int = 1000,
        finish_timeout: float = 5.0,
    ) -> None:
        """Call `handler(record)` for every record, up to `workers` at a time, until the consumer is closed.

        Records of one key of a partition are handled one after the other (`ordered_by`: "key", "partition" or "none");
        records without a key in any order. What is done is committed by itself every auto.commit.interval.ms, at each
        rebalance and at the end, never beyond a record that is not done; what was done beyond it is noted in the
        commit, and not done again. `limit` records wait or are in work at most.

        An exception ends it all: what is in work gets `finish_timeout` seconds, then the exception is raised, and the
        next poll begins at the record that failed. With `on_error(record, error)` such a record counts as done once
        that returns. Partitions that go to another member have their work finished within `finish_timeout`, too; what
        takes longer is done again there. Handlers that are coroutine
        functions run as tasks, which are cancelled when their time is over; others keep the loop for themselves.
        """
        make_pool = partial(TaskPool, call=self._call, wake=self._opened().turn_soon)
        await Processor(self, make_pool, handler, workers, ordered_by, on_error, limit, finish_timeout).run()

    # --- what reading is made of ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reads(self) -> Iterator[None]:
        driver = self._opened()
        if self._polling:
            raise UsageError("another task polls this consumer, or it is polled from one of its own callbacks")
        self._polling = True
        try:
            yield
        finally:
            self._polling = False
            if self._closed and not driver.closed:
                driver.turn_soon()  # a close waits for this

    async def _next(self, timeout: float | None) -> DecodedRecords | CompletedFetch | None:
        """Returns the next records, calling the listener before if it has to know something; None when the time is
        over."""
        core, driver = self._core, self._opened()
        deadline = None if timeout is None else time.monotonic() + timeout
        await asyncio.sleep(0)  # a reader that always finds something must not keep the loop for itself
        while True:
            found = driver.run(core.poll)
            if isinstance(found, RebalanceEvent):
                await self._deliver_event(found)
            elif found is not None:
                return found
            else:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                try:
                    driver.run(core.begin_wait)
                    if not await driver.wait(core.is_ready, left):
                        return None
                finally:
                    core.is_waiting = False
                    if not driver.closed:
                        driver.run(core.end_wait)

    async def _wait_for_next(self) -> DecodedRecords | CompletedFetch:
        try:
            found = await self._next(None)
        except ClientClosed:
            if self._closed:
                raise _Ended from None
            raise
        assert found is not None, "waiting without end has ended"
        return found

    async def _next_decoded(self) -> DecodedRecords | None:
        """Returns records for an iteration; None once the consumer is closed."""
        decoded = None
        while decoded is None:
            if self._closed:
                return None
            try:
                with self._reads():
                    found = await self._wait_for_next()
                    decoded = found if isinstance(found, DecodedRecords) else self._decode(found, CHUNK)
            except _Ended:
                return None
        self._core.delivered.begin_iteration(decoded)
        return decoded

    async def _wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        assert self._driver is not None, "a flow begins with the driver"
        return await self._driver.wait(done, timeout_s)

    async def _deliver_event(self, event: RebalanceEvent) -> None:
        callback = self._listener.callback_for(event)
        self._core.event_delivered()
        if callback is not None:
            await self._call(callback, self, event.partitions)

    async def _call(self, function: Callable[..., Any], *args: Any) -> None:
        result = function(*args)
        if inspect.isawaitable(result):
            await result

    def wakeup(self) -> None:
        """Let the task that waits in here, or the next one that would, raise WokenUp. May be called from any thread."""
        driver = self._opened()
        self._core.woken = self._core.needs_poll = True
        driver.wakeup()

    # --- positions, commits -----------------------------------------------------------------------------------------

    commit = _awaited(ConsumerCalls.commit)
    committed = _awaited(ConsumerCalls.committed)
    position = _awaited(ConsumerCalls.position)
    offsets_for_times = _awaited(ConsumerCalls.offsets_for_times)
    beginning_offsets = _awaited(ConsumerCalls.beginning_offsets)
    end_offsets = _awaited(ConsumerCalls.end_offsets)
    partitions_for = _awaited(ConsumerCalls.partitions_for)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Give everything up and leave the group; with `enable.auto.commit` what was read is committed before."""
        await self._unsubscribe()

    async def close(self, timeout: float | None = None) -> None:
        """See `barnabas.Consumer.close`. A cancelled close does without answers and closes all the same."""
        await self._close(CLOSE_TIMEOUT_S if timeout is None else seconds("timeout", timeout), True)

    async def _close(self, timeout: float, all_delivered: bool) -> None:
        driver, already, self._closed = self._driver, self._closed, True
        if driver is None or already or driver.closed:
            return
        deadline = time.monotonic() + timeout
        try:
            self._core.closing = self._core.needs_poll = True
            driver.run(lambda: None)
            await driver.wait(lambda: not self._polling, timeout / 2)
            await self._leave(deadline, all_delivered)
        finally:
            driver.close()

    async def __aenter__(self) -> Self:
        self._opened()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes. What was at hand when an exception ended the block is not committed."""
        await self._close(CLOSE_TIMEOUT_S, kind is None)


class _Ended(Exception):
    """The consumer was closed: an iteration is at its end."""
