"""The asyncio consumer, `barnabas.aio.Consumer`."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial, wraps
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from barnabas.client.arguments import seconds, seconds_or_none
from barnabas.client.consumer.calls import ConsumerCalls
from barnabas.client.consumer.front_base import CLOSE_TIMEOUT_S, LOOK_S
from barnabas.client.consumer.processing.processor import Handler, OnError, Processor
from barnabas.client.consumer.processing.tasks import TaskPool
from barnabas.client.consumer.reading import Ended, Pace
from barnabas.client.consumer.tasks import TaskReading
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.connection.drivers.aio import AioDriver
from barnabas.connection.flow import settle
from barnabas.errors import ClientClosed
from barnabas.records.consumer_record import ConsumerRecord, K, V
from barnabas.types import TopicPartition

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
    """Makes a method of a call. The method is to be awaited."""

    @wraps(call)
    async def method(self: "Consumer[Any, Any]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        promise = self._run(lambda: settle(call(self._calls, *args, **kwargs)))
        state = self._state
        was_closing = state.closing  # the listener may call the consumer while that is closed
        await self._wait(lambda: promise.done or state.woken or state.closing is not was_closing)
        return self._answer(promise, was_closing)

    return method


class Consumer(TaskReading, Generic[K, V]):
    """Reads the records of topics, from an event loop: iterate over it, or await `poll`.

        async with barnabas.aio.Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    Arguments and names are those of `barnabas.Consumer`; methods that may wait are to be awaited, and the callbacks of
    a subscription may be coroutine functions. A cancelled call loses no record; a cancelled commit may still have its
    effect. `async with` closes the consumer, which commits the offsets that were read and leaves the group.
    """

    def __init__(
        self,
        *topics: "str | re.Pattern[str] | Mapping[str, Any]",
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **named: "Unpack[ConsumerKeywords]",
    ) -> None:
        """Checks the arguments. Raises UsageError for settings that do not exist or do not fit. The consumer belongs to
        the running event loop, or to that of its first call."""
        self._init_tasks()
        self._pid = os.getpid()
        self._set_up(topics, {**named, "key_deserializer": key_deserializer, "value_deserializer": value_deserializer})

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # no loop runs yet: the consumer connects with its first call
            asyncio.get_running_loop()
            self._begin()

    def _begin(self) -> AioDriver:
        state = self._state = self._new_state()
        driver = self._driver = AioDriver(state.client, ssl_context=self._tls, name="consumer")
        self._begun = True
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
        if self._closed and (not self._begun or self._driver.closed):
            raise ClientClosed("the consumer is closed")  # not during a close, in which the listener may commit
        if os.getpid() != self._pid:
            self._check_not_static()
            self._pid, self._begun = os.getpid(), False
        return self._driver if self._begun else self._begin()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> "list[ConsumerRecord[K, V]]":
        """Returns the next records; see `barnabas.Consumer.poll`."""
        limit = self._poll_limit(timeout, max_records)
        records: list[ConsumerRecord[K, V]] = []
        with self._reads():
            self._collect(records, await self._next(timeout), limit)
            self._opened().turn_soon()  # the poll has made room: fetch more while the application works
        self._state.delivered.rollback_positions = {}
        return records

    async def poll_batch(self, timeout: float | None = None) -> "RecordBatch[K, V] | None":
        """Returns the next records as a batch; see `barnabas.Consumer.poll_batch`."""
        seconds_or_none("timeout", timeout)
        with self._reads():
            found = await self._next(timeout)
            batch = None if found is None else self._read_batch(found)
            self._opened().turn_soon()  # the same as in `poll`
        self._state.delivered.rollback_positions = {}
        return batch

    async def __aiter__(self) -> "AsyncIterator[ConsumerRecord[K, V]]":
        """Yields records until the consumer is closed. A record counts as processed when the next one is requested."""
        pace = Pace()
        while (decoded := await self._next_decoded()) is not None:
            state, iterator = self._state, decoded.iterator
            while True:
                state.polled_at = pace.begin()
                for record in islice(iterator, pace.size):
                    yield record
                if state.needs_poll or not length_hint(iterator):
                    break
                if pace.end():
                    await asyncio.sleep(0)  # heartbeats must be sent while the application works without a pause

    def until_end(self, timeout: float | None = None) -> "AsyncIterator[ConsumerRecord[K, V]]":
        """Yields the records up to the present ends; see `barnabas.Consumer.until_end`."""
        return self._until_end(seconds_or_none("timeout", timeout))

    async def _until_end(self, limit: float | None) -> "AsyncIterator[ConsumerRecord[K, V]]":
        ends: dict[TopicPartition, int] = {}
        quiet_since = time.monotonic()
        while True:
            records = await self.poll(LOOK_S)
            for record in records:
                yield record
            if records:
                quiet_since = time.monotonic()
            unknown = self._without_end(ends)
            if unknown:
                ends.update(await self.end_offsets(unknown))
            if unknown is not None and self._has_reached(ends):
                return
            if limit is not None and time.monotonic() - quiet_since > limit:
                raise self._no_end(ends, limit)

    async def batches(self) -> "AsyncIterator[RecordBatch[K, V]]":
        """Yields batches of records until the consumer is closed; see `barnabas.Consumer.batches`."""
        while True:
            try:
                with self._reads():
                    batch = self._read_batch(await self._wait_for_next())
            except Ended:
                return
            if batch is not None:
                self._state.delivered.rollback_positions = {}
                yield batch

    async def arrow(self, *, headers: bool = False) -> "AsyncIterator[pyarrow.Table]":
        """Yields Arrow tables until the consumer is closed; see `barnabas.Consumer.arrow`."""
        while True:
            try:
                with self._reads():
                    table = self._read_table(await self._wait_for_next(), headers)
            except Ended:
                return
            if table is not None:
                self._state.delivered.rollback_positions = {}
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
        """Calls `handler(record)` for every record until the consumer is closed; see `barnabas.Consumer.process`.

        Handlers that are coroutine functions run as tasks, up to `workers` at a time, which are cancelled after
        `finish_timeout`. Other handlers block the loop.
        """
        make_pool = partial(TaskPool, call=self._call, wake=self._opened().turn_soon)
        await Processor(self, make_pool, handler, workers, ordered_by, on_error, limit, finish_timeout).run()

    def wakeup(self) -> None:
        """Makes the task that waits in a call, or the next one that would wait, raise WokenUp. Any thread may call
        it."""
        driver = self._opened()
        self._state.woken = self._state.needs_poll = True
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
        """Gives up all partitions and leaves the group, with `enable.auto.commit` after a commit."""
        await self._unsubscribe()

    async def close(self, timeout: float | None = None) -> None:
        """Closes the consumer; see `barnabas.Consumer.close`. A cancelled close does not wait for responses."""
        await self._close(CLOSE_TIMEOUT_S if timeout is None else seconds("timeout", timeout), True)

    async def __aenter__(self) -> Self:
        self._opened()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the consumer. If an exception ended the block, its current records are not committed."""
        await self._close(CLOSE_TIMEOUT_S, kind is None)
