"""The asyncio consumer, `barnabas.aio.Consumer`."""

import asyncio
import contextlib
import inspect
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from barnabas.client.arguments import seconds, seconds_or_none
from barnabas.client.consumer.delivered_records import Held
from barnabas.client.consumer.front_base import (
    CLOSE_TIMEOUT_S,
    OffsetAndTimestamp,
    OffsetsArgument,
    Partitions,
    Times,
    at_times,
    begin,
    end,
    found_at_times,
    plain_offsets,
)
from barnabas.client.consumer.group.rebalance import Notice
from barnabas.client.consumer.processing.tasks import Processing
from barnabas.client.consumer.processing.threads import Handler, OnError
from barnabas.client.consumer.reading import CHUNK, Pace, ReadingBase
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.cluster import PartitionView
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.promise import Promise
from barnabas.errors import ClientClosed, UsageError
from barnabas.records.consumer_record import ConsumerRecord, K, V
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import re

    import pyarrow

    from barnabas.client.settings.keywords import ConsumerKeywords

__all__ = ["Consumer"]

T = TypeVar("T")

_log = logging.getLogger("barnabas.consumer")


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
            raise ClientClosed("the consumer is closed")  # not while it says goodbye: its listener may commit
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
            self._opened().nudge()  # what was taken makes room: ask for more while the application works
        self._core.handing.owed = {}
        return records

    async def poll_batch(self, timeout: float | None = None) -> "RecordBatch[K, V] | None":
        """See `barnabas.Consumer.poll_batch`."""
        seconds_or_none("timeout", timeout)
        with self._reads():
            found = await self._next(timeout)
            batch = None if found is None else self._read_batch(found)
            self._opened().nudge()  # as poll does
        self._core.handing.owed = {}
        return batch

    async def __aiter__(self) -> "AsyncIterator[ConsumerRecord[K, V]]":
        """Record by record, without end; it ends when the consumer is closed. A record counts as done when the next one
        is asked for."""
        pace = Pace()
        while (held := await self._next_held()) is not None:
            core, iterator = self._core, held.iterator
            while True:
                core.touched_at = pace.begin()
                for record in islice(iterator, pace.size):
                    yield record
                if core.attention or not length_hint(iterator):
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
                self._core.handing.owed = {}
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
                self._core.handing.owed = {}
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
        await Processing(
            self,
            handler,
            workers,
            ordered_by=ordered_by,
            on_error=on_error,
            limit=limit,
            finish_timeout=finish_timeout,
        ).run()

    # --- what reading is made of ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reads(self) -> Iterator[None]:
        """One task polls at a time."""
        driver = self._opened()
        if self._polling:
            raise UsageError("another task polls this consumer, or it is polled from one of its own callbacks")
        self._polling = True
        try:
            yield
        finally:
            self._polling = False
            if self._closed and not driver.closed:
                driver.nudge()  # a close waits for this

    async def _next(self, timeout: float | None) -> Held | CompletedFetch | None:
        """What is to be read next. Before that the listener hears what it must. None when the time is over."""
        core, driver = self._core, self._opened()
        deadline = None if timeout is None else time.monotonic() + timeout
        await asyncio.sleep(0)  # a reader that always finds something must not keep the loop for itself
        while True:
            found = driver.run(core.look)
            if isinstance(found, Notice):
                await self._tell(found)
            elif found is not None:
                return found
            else:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                try:
                    driver.run(core.enter)
                    if not await driver.wait(core.is_ready, left):
                        return None
                finally:
                    core.waits = False
                    if not driver.closed:
                        driver.run(core.leave)

    async def _wait_for_next(self) -> Held | CompletedFetch:
        """For an iteration: a closed consumer is its end."""
        try:
            found = await self._next(None)
        except ClientClosed:
            if self._closed:
                raise _Ended from None
            raise
        assert found is not None, "waiting without end has ended"
        return found

    async def _next_held(self) -> Held | None:
        """Records for an iteration; None once the consumer is closed."""
        held = None
        while held is None:
            if self._closed:
                return None
            try:
                with self._reads():
                    found = await self._wait_for_next()
                    held = found if isinstance(found, Held) else self._decode(found, CHUNK)
            except _Ended:
                return None
        self._core.handing.iterate(held)
        return held

    async def _tell(self, notice: Notice) -> None:
        callback = self._callback_for(notice)
        self._core.told()
        if callback is not None:
            told = callback(self, notice.partitions)
            if inspect.isawaitable(told):
                await told

    def wakeup(self) -> None:
        """Let the task that waits in here, or the next one that would, raise WokenUp. May be called from any thread."""
        driver = self._opened()
        self._core.woken = self._core.attention = True
        driver.interrupt()

    # --- positions and commits --------------------------------------------------------------------------------------

    async def _wait_for(self, promise: Promise[T]) -> T:
        core = self._core
        parting = core.closing  # a listener that is told of the end may still ask
        driver = self._driver
        assert driver is not None, "the question was asked by it"
        await driver.wait(lambda: promise.done or core.woken or core.closing is not parting)
        return self._answer(promise, parting)

    async def commit(self, offsets: OffsetsArgument | None = None, timeout: float | None = None) -> None:
        """Commit what the application has got (the record at hand included), a record with all before it, or the next
        offsets to read by partition. What passes is tried again for `timeout` seconds (`default.api.timeout.ms`).

        Raises RebalanceInProgress (poll, then commit again), CommitFailed (others may have the partitions), and what
        else the coordinator says.
        """
        await self._wait_for(self._ask_commit(offsets, self._timeout(timeout)))

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: Callable[[Any, Any], object] | None = None
    ) -> None:
        """Commit without waiting, and without a second try. `callback(offsets, error)` is called by the loop; without
        one failures are logged."""
        self._commit_async(offsets, callback)

    async def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None for nothing."""
        return await self._wait_for(self._ask_committed(partitions, self._timeout(timeout)))

    async def position(self, partition: "TopicPartition | tuple[str, int]", timeout: float | None = None) -> int:
        """The offset behind what the application has got. Waits until it is known where to begin."""
        return await self._wait_for(self._ask_position(partition, self._timeout(timeout)))

    async def offsets_for_times(
        self, timestamps: Times, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if there is none so new."""
        places = at_times("timestamps", timestamps)
        return found_at_times(await self._wait_for(self._ask_offsets(places, self._timeout(timeout))))

    async def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets that there are."""
        found = await self._wait_for(self._ask_offsets(begin(partitions), self._timeout(timeout)))
        return plain_offsets(found)

    async def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offsets behind the last records (with `read_committed`: behind the last that can be read)."""
        found = await self._wait_for(self._ask_offsets(end(partitions), self._timeout(timeout)))
        return plain_offsets(found)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions, by number. Raises TopicNotFound, OperationTimedOut."""
        view = await self._wait_for(self._ask_topic(topic, self._timeout(timeout)))
        return view.in_order()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Give everything up and leave the group; with `enable.auto.commit` what was read is committed before."""
        self._run(lambda: self._core.last_commit(0.0, all_done=True))
        notice = self._run(self._core.parting)
        try:
            if notice is not None:
                await self._tell(notice)
        finally:
            self._subscribed = None
            if not self._closed:
                self._run(self._core.unsubscribe)

    async def close(self, timeout: float | None = None) -> None:
        """See `barnabas.Consumer.close`. A cancelled close does without answers and closes all the same."""
        await self._close(CLOSE_TIMEOUT_S if timeout is None else seconds("timeout", timeout), True)

    async def _close(self, timeout: float, all_done: bool) -> None:
        driver, already, self._closed = self._driver, self._closed, True
        if driver is None or already or driver.closed:
            return
        deadline = time.monotonic() + timeout
        try:
            self._core.closing = self._core.attention = True
            driver.run(_nothing)
            await driver.wait(lambda: not self._polling, timeout / 2)
            await self._say_goodbye(driver, deadline, all_done)
        finally:
            driver.close()

    async def _say_goodbye(self, driver: AioDriver, deadline: float, all_done: bool) -> None:
        core = self._core

        async def wait(promise: Promise[None]) -> None:
            left = max(deadline - time.monotonic(), 0.0)
            await driver.wait(lambda: promise.done or not core.can_say_goodbye(), left)

        with contextlib.suppress(ClientClosed):
            await wait(driver.run(lambda: core.last_commit(max(deadline - time.monotonic(), 0.0), all_done=all_done)))
            notice = driver.run(core.parting)
            if notice is not None:
                try:
                    await self._tell(notice)
                except Exception:
                    _log.exception("on_%s fails while the consumer is closed", notice.kind)
            await wait(driver.run(lambda: core.unsubscribe("the consumer is closed")))
            driver.run(core.fetching.close)

    async def __aenter__(self) -> Self:
        self._opened()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes. What was at hand when an exception ended the block is not committed."""
        await self._close(CLOSE_TIMEOUT_S, kind is None)


class _Ended(Exception):
    """The consumer was closed: an iteration is at its end."""


def _nothing() -> None:
    """For a turn of the driver without anything else."""
