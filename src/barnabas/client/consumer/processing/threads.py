"""The workers of `barnabas.Consumer.process`: threads. Locks are taken in one order: the driver's, then the pool's."""

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.processing.ordered_queue import QueuedRecord
from barnabas.client.consumer.processing.processor import Handler, OnError, explain
from barnabas.client.consumer.processing.records_in_progress import RecordsInProgress
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["ThreadPool"]

CHECK_S: Final = 0.01
"""The interval at which a wait for work in progress checks whether the consumer is being closed."""


class ThreadPool:
    """A pool of threads. Several threads may use it."""

    def __init__(
        self,
        records: RecordsInProgress,
        handler: Handler,
        on_error: OnError | None,
        count: int,
        *,
        wake: Callable[[], None],
        is_closing: Callable[[], bool],
    ) -> None:
        """Starts the threads. `wake` is called when the dispatcher has work."""
        self.failure: BaseException | None = None
        self._records = records
        self._handler = handler
        self._on_error = on_error
        self._wake = wake
        self._is_closing = is_closing
        self._changed = threading.Condition()
        self._stopped = False
        self._starved = False
        """Whether the dispatcher waits for room."""
        self._busy = 0
        for index in range(count):
            # daemons, because a handler that never returns must not keep the process alive
            threading.Thread(target=self._run, name=f"consumer-worker-{index}", daemon=True).start()

    # --- workers ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (task := self._next()) is not None:
            error = self._handle(task.record)
            with self._changed:
                self._busy -= 1
                if error is None:
                    self._records.done(task)
                    self._changed.notify()  # the next record of its key may be ready
                else:
                    self.failure = self.failure or error
                    self._stopped = True
                    self._changed.notify_all()
                wake = error is not None or (self._starved and self._records.wants_more)
                self._starved = self._starved and not wake
            if wake:
                self._wake()

    def _next(self) -> QueuedRecord | None:
        with self._changed:
            while not self._stopped:
                task = self._records.take()
                if task is not None:
                    self._busy += 1
                    return task
                self._changed.wait()
            self._changed.notify_all()
            return None

    def _handle(self, record: AnyRecord) -> BaseException | None:
        try:
            try:
                self._handler(record)
            except Exception as error:
                if self._on_error is None:
                    raise
                self._on_error(record, error)
        except BaseException as error:
            explain(error, record)
            return error
        return None

    # --- the dispatcher ---------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        with self._changed:
            self._starved = not self._records.wants_more
            return 0 if self._starved else self._records.room

    def add(self, records: list[AnyRecord]) -> None:
        with self._changed:
            self._records.add(records)
            self._changed.notify(len(records))

    def offsets(self, read: Offsets) -> Offsets:
        with self._changed:
            return self._records.offsets(read)

    def drop_waiting(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._records.drop_waiting(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._records.forget(partitions)

    async def give_way(self) -> None:
        """Does nothing: threads run by themselves."""

    async def finish(self, seconds: float, partitions: Collection[TopicPartition] | None = None) -> int:
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                left = self._busy if partitions is None else self._records.unfinished(partitions)
                remaining = deadline - time.monotonic()
                if not left or remaining <= 0 or (partitions is not None and self._is_closing()):
                    return left
                self._changed.wait(min(remaining, CHECK_S))

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """Does nothing: threads cannot be cancelled."""
