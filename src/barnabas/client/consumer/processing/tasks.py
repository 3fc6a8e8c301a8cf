"""The workers of `barnabas.aio.Consumer.process`: tasks of the event loop, one for each record in progress."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.processing.ordered_queue import QueuedRecord
from barnabas.client.consumer.processing.processor import SHORT_S, Handler, OnError, explain
from barnabas.client.consumer.processing.records_in_progress import RecordsInProgress
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["TaskPool"]


class TaskPool:
    def __init__(
        self,
        records: RecordsInProgress,
        handler: Handler,
        on_error: OnError | None,
        count: int,
        *,
        call: Callable[..., Any],
        wake: Callable[[], None],
    ) -> None:
        """Takes `call`, which calls a function of the application and awaits its result if necessary, and `wake`, which
        is called when the dispatcher has work."""
        self.failure: BaseException | None = None
        self._records = records
        self._handler = handler
        self._on_error = on_error
        self._count = count
        self._call = call
        self._wake = wake
        self._running: dict[asyncio.Task[None], QueuedRecord] = {}
        self._stopped = False

    # --- workers ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begins records up to the number of workers."""
        while len(self._running) < self._count and not self._stopped:
            queued = self._records.take()
            if queued is None:
                return
            task = asyncio.create_task(self._handle(queued))
            self._running[task] = queued
            task.add_done_callback(self._ended)

    async def _handle(self, queued: QueuedRecord) -> None:
        record = queued.record
        try:
            await self._call(self._handler, record)
        except Exception as error:
            if self._on_error is None:
                explain(error, record)
                raise
            await self._call(self._on_error, record, error)
        self._records.done(queued)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        queued = self._running.pop(task)
        if task.cancelled() and task.cancelling():
            self._records.give_up(queued)
        else:
            try:
                task.result()
            except BaseException as error:  # also a handler's CancelledError that is none of its task
                self.failure = self.failure or error
                self._stopped = True
        self._begin()
        if self.failure is not None or self._records.wants_more:
            self._wake()

    # --- the dispatcher ---------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        return self._records.room if self._records.wants_more else 0

    def add(self, records: list[AnyRecord]) -> None:
        self._records.add(records)
        self._begin()

    def offsets(self, read: Offsets) -> Offsets:
        return self._records.offsets(read)

    def drop_waiting(self, partitions: Collection[TopicPartition]) -> None:
        self._records.drop_waiting(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        self._records.forget(partitions)

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    async def finish(self, seconds: float, partitions: Collection[TopicPartition] | None = None) -> int:
        """Cancels the tasks that take longer."""
        deadline = time.monotonic() + seconds

        def left() -> list[asyncio.Task[None]]:
            return [
                task for task, queued in self._running.items() if partitions is None or queued.partition in partitions
            ]

        while (running := left()) and time.monotonic() < deadline:
            await asyncio.wait(running, timeout=deadline - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=SHORT_S)
        return len(running)

    def stop(self) -> None:
        self._stopped = True

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()
