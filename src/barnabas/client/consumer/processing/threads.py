"""`Consumer.process`: records go through a pool of threads, and what is done is committed without gaps.

The thread that called it reads and dispatches, and does what else a poll does; workers only call the handler. Locks are
taken in one order: the driver's, then the pool's.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.arguments import callback, number, refused, seconds
from barnabas.client.consumer.group.offset_commits import Offsets
from barnabas.client.consumer.group.rebalance import ASSIGNED, REVOKED, Notice
from barnabas.client.consumer.processing.keyed_work import Task
from barnabas.client.consumer.processing.work import Work
from barnabas.client.consumer.reading import CHUNK
from barnabas.errors import ClientClosed, RecordDeserializationFailed
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.consumer.front import Consumer

__all__ = ["Handler", "OnError", "Processing", "check_arguments", "explain"]

Handler = Callable[[AnyRecord], Any]
OnError = Callable[[AnyRecord, Exception], Any]

SHORT_S: Final = 0.02
"""What work under way gets when the application is in a hurry: Ctrl-C, close."""
LOOK_S: Final = 0.01

_log = logging.getLogger("barnabas.consumer")


def check_arguments(handler: Handler, workers: int, on_error: OnError | None, finish_timeout: float) -> None:
    """Of `process`, those that nobody else looks at. Raises UsageError."""
    if not callable(handler):
        raise refused("handler", handler, "give a function, which is called with each record")
    _workers("workers", workers)
    callback("on_error", on_error)
    seconds("finish_timeout", finish_timeout)


_workers = number(1)


def explain(error: BaseException, record: AnyRecord) -> None:
    """Which record it was, for whoever reads the traceback."""
    error.add_note(f"while the record at {record.topic}-{record.partition}, offset {record.offset}, was processed")


class Pool:
    """Threads that take work and call the handler. Safe for several threads."""

    def __init__(
        self, work: Work, handler: Handler, on_error: OnError | None, count: int, wake: Callable[[], None]
    ) -> None:
        """`wake` is called when the dispatcher has something to do."""
        self.failure: BaseException | None = None
        """The first one that ended the work."""
        self._work = work
        self._handler = handler
        self._on_error = on_error
        self._wake = wake
        self._changed = threading.Condition()
        self._stopped = False
        self._starved = False
        """Whether the dispatcher waits for room."""
        self._busy = 0
        for index in range(count):
            # daemons: a handler that never returns must not keep the process from ending
            threading.Thread(target=self._run, name=f"consumer-worker-{index}", daemon=True).start()

    # --- workers ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (task := self._next()) is not None:
            error = self._handle(task.record)
            with self._changed:
                self._busy -= 1
                if error is None:
                    self._work.done(task)
                    self._changed.notify()  # the next record of its key may be ready
                else:
                    self.failure = self.failure or error
                    self._stopped = True
                    self._changed.notify_all()
                wake = error is not None or (self._starved and self._work.wants_more)
                self._starved = self._starved and not wake
            if wake:
                self._wake()

    def _next(self) -> Task | None:
        with self._changed:
            while not self._stopped:
                task = self._work.take()
                if task is not None:
                    self._busy += 1
                    return task
                self._changed.wait()
            self._changed.notify_all()
            return None

    def _handle(self, record: AnyRecord) -> BaseException | None:
        try:
            self._handler(record)
        except Exception as error:
            if self._on_error is not None:
                try:
                    self._on_error(record, error)
                except BaseException as second:
                    explain(second, record)
                    return second
                return None
            explain(error, record)
            return error
        except BaseException as error:
            explain(error, record)
            return error
        return None

    # --- the dispatcher ---------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many records to bring; 0 until it is worth the trouble."""
        with self._changed:
            self._starved = not self._work.wants_more
            return 0 if self._starved else self._work.room

    def add(self, records: list[AnyRecord]) -> None:
        with self._changed:
            self._work.add(records)
            self._changed.notify(len(records))

    def offsets(self, read: Offsets) -> Offsets:
        with self._changed:
            return self._work.offsets(read)

    def stop(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def drop_waiting(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._work.drop_waiting(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._work.forget(partitions)

    def finish(self, seconds: float, in_hurry: Callable[[], bool], partitions: Collection[TopicPartition] = ()) -> int:
        """Wait for work under way, of these partitions or of all, at most so long; how much is left."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                left = self._work.unfinished(partitions) if partitions else self._busy
                remaining = deadline - time.monotonic()
                if not left or remaining <= 0 or in_hurry():
                    return left
                self._changed.wait(min(remaining, LOOK_S))


class Processing:
    """One call of `process`."""

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

    def run(self) -> None:
        """Until the consumer is closed. Raises what the work ended with."""
        consumer = self._consumer
        with consumer._reads():
            self._core, self._driver = consumer._core, consumer._driver
            work = Work(self._ordered_by, self._limit, self._core.resumed_from)
            self._pool = Pool(work, self._handler, self._on_error, self._workers, self._driver.interrupt)
            patience = SHORT_S
            try:
                self._driver.run(lambda: self._core.begin_work(self._pool.offsets))
                self._dispatch()
            except ClientClosed:
                if not self._core.closing:
                    raise
            except Exception:
                patience = self._finish_s
                raise
            finally:
                self._end(patience)

    def _in_hurry(self) -> bool:
        return self._core.closing

    def _dispatch(self) -> None:
        core, driver = self._core, self._driver
        while True:
            if self._pool.failure is not None:
                raise self._pool.failure
            notice = driver.run(core.attend)
            if notice is not None:
                self._tell(notice)
            elif not self._feed():
                try:
                    driver.run(core.enter)
                    driver.wait(self._is_due)
                finally:
                    core.waits = False
                    if not driver.closed:
                        driver.run(core.leave)

    def _is_due(self) -> bool:
        if self._pool.failure is not None or self._core.attention:
            return True
        return self._pool.room > 0 and self._core.is_ready()

    def _feed(self) -> bool:
        """Bring records, if there are any and room for them."""
        room = self._pool.room
        if not room:
            return False
        with self._driver.lock:
            found = self._core.more()
        if found is None:
            return False
        try:
            records = self._consumer._return_some(found, min(room, CHUNK), told=True)
        except RecordDeserializationFailed as error:
            if self._on_error is None:
                raise
            record = error.record
            self._on_error(record, error)
            self._driver.run(lambda: self._core.seek(TopicPartition(record.topic, record.partition), record.offset + 1))
            return True
        self._pool.add(records or [])
        self._core.handing.owed = {}
        return True

    # --- rebalances -------------------------------------------------------------------------------------------------

    def _tell(self, notice: Notice) -> None:
        """Partitions that go: what is in work ends and is committed, what waits is left to their next owner."""
        if notice.kind == ASSIGNED:
            self._consumer._tell(notice)
            return
        self._pool.drop_waiting(notice.partitions)
        try:
            if notice.kind == REVOKED and notice.partitions:
                left = self._pool.finish(self._finish_s, self._in_hurry, notice.partitions)
                if left:
                    _log.warning(
                        "%d records are still worked on while their partitions go: they are done again elsewhere", left
                    )
                self._commit(self._finish_s)
            self._consumer._tell(notice)
        finally:
            self._pool.forget(notice.partitions)

    def _commit(self, seconds: float) -> None:
        """Failures are logged."""
        promise = self._driver.run(lambda: self._core.last_commit(seconds, all_done=False))
        self._driver.wait(lambda: promise.done or self._core.closing, seconds)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _end(self, patience: float) -> None:
        pool, driver = self._pool, self._driver
        pool.stop()
        left = pool.finish(patience, lambda: False)
        if left:
            _log.warning("%d records are still worked on; they are not committed", left)
        with contextlib.suppress(ClientClosed):  # a close that did not wait has committed what was done
            self._commit(patience if patience > SHORT_S else 0.0)
            driver.run(self._core.end_work)
