"""Runs `Consumer.process`: reads records, lets a pool of workers call the handler, and commits offsets without gaps.

The thread or task that called `process` does the work of a poll; the workers only call the handler.
"""

import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

from barnabas.client.arguments import callback, number, refused, seconds
from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.processing.records_in_progress import RecordsInProgress
from barnabas.client.consumer.reading import CHUNK, ReadingBase
from barnabas.client.consumer.rebalance_listener import ASSIGNED, REVOKED, RebalanceEvent
from barnabas.errors import ClientClosed, RecordDeserializationFailed
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["SHORT_S", "Handler", "OnError", "Pool", "Processor", "explain"]

Handler = Callable[[AnyRecord], Any]
OnError = Callable[[AnyRecord, Exception], Any]

SHORT_S: Final = 0.02
"""The time for work in progress to end after Ctrl-C or a close."""

_log = logging.getLogger("barnabas.consumer")
_workers = number(1)


def explain(error: BaseException, record: AnyRecord) -> None:
    """Adds the record's place to the traceback."""
    error.add_note(f"while the record at {record.topic}-{record.partition}, offset {record.offset}, was processed")


class Pool(Protocol):
    """Workers that take records from a RecordsInProgress and call the handler."""

    failure: BaseException | None
    """The first error that ended the work."""

    @property
    def room(self) -> int:
        """The number of records to add; 0 until enough are done to be worth a fetch."""

    def add(self, records: list[AnyRecord]) -> None: ...
    def offsets(self, read: Offsets) -> Offsets: ...
    def drop_waiting(self, partitions: Collection[TopicPartition]) -> None: ...
    def forget(self, partitions: Collection[TopicPartition]) -> None: ...
    async def give_way(self) -> None:
        """Lets the workers go on."""

    async def finish(self, seconds: float, partitions: Collection[TopicPartition] | None = None) -> int:
        """Waits for work in progress, of these partitions or of all. Returns the number of records that are not
        done."""

    def stop(self) -> None:
        """Lets no worker begin another record."""

    def cancel(self) -> None:
        """Cancels the work in progress if that is possible."""


class Processor:
    """A call of `process`."""

    def __init__(
        self,
        consumer: ReadingBase,
        make_pool: Callable[[RecordsInProgress, Handler, OnError | None, int], Pool],
        handler: Handler,
        workers: int,
        ordered_by: str,
        on_error: OnError | None,
        limit: int,
        finish_timeout: float,
    ) -> None:
        """Checks the arguments. Raises UsageError."""
        if not callable(handler):
            raise refused("handler", handler, "give a function, which is called with each record")
        self._workers = _workers("workers", workers)
        self._on_error: OnError | None = callback("on_error", on_error)
        self._finish_s = min(seconds("finish_timeout", finish_timeout), consumer.settings.max_poll_interval_ms / 2000)
        self._consumer = consumer
        self._make_pool = make_pool
        self._handler = handler
        self._ordered_by = ordered_by
        self._limit = limit

    async def run(self) -> None:
        """Processes records until the consumer is closed. Raises the error that ended the work."""
        consumer = self._consumer
        with consumer._reads():
            state, driver = self._state, self._driver = consumer._state, consumer._driver
            records = RecordsInProgress(self._ordered_by, self._limit, state.resumed_from)
            pool = self._pool = self._make_pool(records, self._handler, self._on_error, self._workers)
            finish_s = SHORT_S
            try:
                driver.run(lambda: state.begin_processing(pool.offsets))
                await self._dispatch()
            except ClientClosed:
                if not state.closing:
                    raise
            except Exception:
                finish_s = self._finish_s
                raise
            finally:
                await self._end(finish_s)

    async def _dispatch(self) -> None:
        state, driver, pool = self._state, self._driver, self._pool
        while True:
            await pool.give_way()
            if pool.failure is not None:
                raise pool.failure
            event = driver.run(state.poll_coordinator)
            if event is not None:
                await self._on_event(event)
            elif not await self._feed():
                try:
                    driver.run(state.begin_wait)
                    await self._consumer._wait(self._is_due)
                finally:
                    state.is_waiting = False
                    if not driver.closed:
                        driver.run(state.end_wait)

    def _is_due(self) -> bool:
        if self._pool.failure is not None or self._state.needs_poll:
            return True
        return self._pool.room > 0 and self._state.is_ready()

    async def _feed(self) -> bool:
        """Adds records to the pool. Returns False if there are none, or no room for them."""
        room = self._pool.room
        if not room:
            return False
        with self._driver.lock:
            found = self._state.next_records()
        if found is None:
            return False
        try:
            records = self._consumer._return_some(found, min(room, CHUNK), raises=True)
        except RecordDeserializationFailed as error:
            if self._on_error is None:
                raise
            record = error.record
            await self._consumer._call(self._on_error, record, error)
            self._driver.run(
                lambda: self._state.seek(TopicPartition(record.topic, record.partition), record.offset + 1)
            )
            return True
        self._pool.add(records or [])
        self._state.delivered.rollback_positions = {}
        return True

    async def _on_event(self, event: RebalanceEvent) -> None:
        """Before partitions are given up, finishes and commits their records in progress, and drops the waiting ones,
        which their next owner processes."""
        if event.kind == ASSIGNED:
            await self._consumer._deliver_event(event)
            return
        self._pool.drop_waiting(event.partitions)
        try:
            if event.kind == REVOKED and event.partitions:
                left = await self._pool.finish(self._finish_s, event.partitions)
                if left:
                    _log.warning(
                        "%d records are not done while their partitions go: their next owner does them again", left
                    )
                await self._commit(self._finish_s)
            await self._consumer._deliver_event(event)
        finally:
            self._pool.forget(event.partitions)

    async def _commit(self, timeout_s: float) -> None:
        """Commits the offsets of records that are done. Errors are logged."""
        promise = self._driver.run(lambda: self._state.auto_commit(timeout_s, all_delivered=False))
        if timeout_s:
            await self._consumer._wait(lambda: promise.done or self._state.closing, timeout_s)

    async def _end(self, finish_s: float) -> None:
        self._pool.stop()
        try:
            left = await self._pool.finish(finish_s)
            if left:
                _log.warning("%d records are not done; they are not committed", left)
            with contextlib.suppress(ClientClosed):  # a close that did not wait has made the commit
                await self._commit(finish_s if finish_s > SHORT_S else 0.0)
        finally:
            self._pool.cancel()
            with contextlib.suppress(ClientClosed):
                self._driver.run(self._state.end_processing)
