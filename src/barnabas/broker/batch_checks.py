"""Checks the batches of a log with their checksums where readers come back again and again.

A broker sends slices of files and sees no record. Consumers and followers do, and ask again for what they cannot use.
That is no evidence, but a reason to look.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from barnabas.broker.process.failure_log import FailureLog
from barnabas.errors import KafkaError
from barnabas.log.directories.disk import HeldSlice
from barnabas.log.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.file_slice import FileSlice
from barnabas.replication.partition import Partition
from barnabas.types import Offset

__all__ = ["BatchChecks"]

_CHECKED_BYTES: Final = 1024 * 1024
_PAUSE_S: Final = 0.2
"""The time between two checks: a consumer that waits for many bytes reads from the same offset again and again, too."""


class BatchChecks:
    """Used on the event loop's thread. One check is made at a time. Single batches are left out meanwhile: whoever
    cannot use them comes back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor, failures: FailureLog) -> None:
        self._loop = loop
        self._threads = threads
        self._failures = failures
        self._is_busy = False
        self._waiting: dict[UnifiedLog, None] = {}
        """The logs that are checked as a whole next."""

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Checks the batches from the one with this offset on, and notes in the log what is wrong with them."""
        log = partition.log
        with contextlib.suppress(KafkaError):  # that is noted, or the offset is gone
            end = log.log_end_offset
            self._check(log, [log.read(offset, _CHECKED_BYTES, upper_bound=end, min_one_message=True).file_slice])

    def suspect_log(self, log: UnifiedLog) -> None:
        """Checks all batches of a log."""
        if self._is_busy:
            self._waiting[log] = None
            return
        try:
            self._check(log, [segment.slice(0, segment.size) for segment in log.segments if segment.size])
        except OSError as error:
            self._failures.report(f"checking {log.topic_partition}", error)

    def _check(self, log: UnifiedLog, parts: Iterable[FileSlice | None]) -> None:
        if self._is_busy or log.damage.found:
            return
        checks = [
            partial(part.owner.why_damaged, part, part.owner.size)
            for part in parts
            if isinstance(part, HeldSlice) and isinstance(part.owner, LogSegment)
        ]
        self._is_busy = True
        done = self._loop.run_in_executor(self._threads, _first, checks)
        done.add_done_callback(partial(self._checked, log, log.truncations))

    def _checked(self, log: UnifiedLog, truncations: int, done: "asyncio.Future[str]") -> None:
        if done.cancelled():
            return  # the broker stops
        self._loop.call_later(_PAUSE_S, self._go_on)
        error = done.exception()
        if error is not None:
            self._failures.report(f"checking {log.topic_partition}", error)
        elif (found := done.result()) and log.truncations == truncations:
            log.damage.note(found)

    def _go_on(self) -> None:
        self._is_busy = False
        while self._waiting and not self._is_busy:
            log = next(iter(self._waiting))
            del self._waiting[log]
            self.suspect_log(log)


def _first(checks: Iterable[Callable[[], str]]) -> str:
    return next(filter(None, (check() for check in checks)), "")
