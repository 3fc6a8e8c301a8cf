"""`barnabas.aio.Consumer.process`: records go through tasks, and what is done is committed without gaps."""

import asyncio
import inspect
import logging
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.group.rebalance import ASSIGNED, REVOKED, Notice
from barnabas.client.consumer.processing.keyed_work import Task
from barnabas.client.consumer.processing.threads import SHORT_S, Handler, OnError, check_arguments, explain
from barnabas.client.consumer.processing.work import Work
from barnabas.client.consumer.reading import CHUNK
from barnabas.errors import ClientClosed, RecordDeserializationFailed
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.consumer.aio_front import Consumer

__all__ = ["Processing"]

_log = logging.getLogger("barnabas.consumer")


class Processing:
    """One call of `process`; the loop is the lock."""

    def __init__(
        self,
        consumer: "Consumer[Any, Any]",
        handler: Handler,
        workers: int,
        *,
        ordered_by: str,
        on_error: OnError | None,
        limit: int,
        finish_timeout: float,
    ) -> None:
        check_arguments(handler, workers, on_error, finish_timeout)
        self._consumer = consumer
        self._handler = handler
        self._workers = workers
        self._on_error = on_error
        self._finish_s = min(finish_timeout, consumer.settings.max_poll_interval_ms / 2000)
        self._ordered_by = ordered_by
        self._limit = limit
        self._running: dict[asyncio.Task[None], TopicPartition] = {}
        self._failure: BaseException | None = None
        self._stopped = False

    async def run(self) -> None:
        """Until the consumer is closed. Raises what the work ended with."""
        consumer = self._consumer
        with consumer._reads():
            self._core, self._driver = consumer._core, consumer._opened()
            self._work = Work(self._ordered_by, self._limit, self._core.resumed_from)
            patience = SHORT_S
            try:
                self._driver.run(lambda: self._core.begin_work(self._work.offsets))
                await self._dispatch()
            except ClientClosed:
                if not self._core.closing:
                    raise
            except Exception:
                patience = self._finish_s
                raise
            finally:
                await self._end(patience)

    async def _dispatch(self) -> None:
        core, driver = self._core, self._driver
        while True:
            await asyncio.sleep(0)
            if self._failure is not None:
                raise self._failure
            notice = driver.run(core.attend)
            if notice is not None:
                await self._tell(notice)
            elif not await self._feed():
                try:
                    driver.run(core.enter)
                    await driver.wait(self._is_due)
                finally:
                    core.waits = False
                    if not driver.closed:
                        driver.run(core.leave)

    def _is_due(self) -> bool:
        if self._failure is not None or self._core.attention:
            return True
        return self._work.wants_more and self._core.is_ready()

    async def _feed(self) -> bool:
        """Bring records, if there are any and room for them."""
        found = self._core.more() if self._work.wants_more else None
        if found is None:
            return False
        try:
            records = self._consumer._return_some(found, min(self._work.room, CHUNK), told=True)
        except RecordDeserializationFailed as error:
            if self._on_error is None:
                raise
            record = error.record
            await self._skip(record, error)
            self._driver.run(lambda: self._core.seek(TopicPartition(record.topic, record.partition), record.offset + 1))
            return True
        self._work.add(records or [])
        self._core.handing.owed = {}
        self._begin()
        return True

    # --- work -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """As many records at a time as there are workers."""
        while len(self._running) < self._workers and not self._stopped:
            task = self._work.take()
            if task is None:
                return
            running = asyncio.create_task(self._handle(task))
            self._running[running] = task.where
            running.add_done_callback(self._ended)

    async def _handle(self, task: Task) -> None:
        record = task.record
        try:
            handled = self._handler(record)
            if inspect.isawaitable(handled):
                await handled
        except Exception as error:
            if self._on_error is None:
                explain(error, record)
                raise
            await self._skip(record, error)
        self._work.done(task)

    async def _skip(self, record: AnyRecord, error: Exception) -> None:
        assert self._on_error is not None
        told = self._on_error(record, error)
        if inspect.isawaitable(told):
            await told

    def _ended(self, running: "asyncio.Task[None]") -> None:
        del self._running[running]
        if not running.cancelled() and running.exception() is not None:
            self._failure = self._failure or running.exception()
            self._stopped = True
        self._begin()
        if not self._driver.closed and (self._failure is not None or self._work.wants_more):
            self._driver.nudge()

    async def _finish(self, seconds: float, partitions: Collection[TopicPartition] | None = None) -> int:
        """Wait for work under way, of these partitions or of all; what takes longer is cancelled. How much that was."""
        deadline = time.monotonic() + seconds

        def left() -> list[asyncio.Task[None]]:
            return [each for each, where in self._running.items() if partitions is None or where in partitions]

        while (running := left()) and time.monotonic() < deadline:
            await asyncio.wait(running, timeout=deadline - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running, timeout=SHORT_S)
        return len(running)

    # --- rebalances -------------------------------------------------------------------------------------------------

    async def _tell(self, notice: Notice) -> None:
        """Partitions that go: what is in work ends and is committed, what waits is left to their next owner."""
        if notice.kind == ASSIGNED:
            await self._consumer._tell(notice)
            return
        self._work.drop_waiting(notice.partitions)
        try:
            if notice.kind == REVOKED and notice.partitions:
                left = await self._finish(self._finish_s, notice.partitions)
                if left:
                    _log.warning("%d records are given up while their partitions go: they are done elsewhere", left)
                await self._commit(self._finish_s)
            await self._consumer._tell(notice)
        finally:
            self._work.forget(notice.partitions)

    async def _commit(self, seconds: float) -> None:
        """Failures are logged."""
        promise = self._driver.run(lambda: self._core.last_commit(seconds, all_done=False))
        if seconds:
            await self._driver.wait(lambda: promise.done or self._core.closing, seconds)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _end(self, patience: float) -> None:
        self._stopped = True
        try:
            left = await self._finish(patience)
            if left:
                _log.warning("%d records are given up; they are not committed", left)
            if not self._driver.closed:
                await self._commit(patience if patience > SHORT_S else 0.0)
        finally:
            for each in self._running:
                each.cancel()
            if not self._driver.closed:
                self._driver.run(self._core.end_work)
