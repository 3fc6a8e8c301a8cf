"""Checks the batches of a log with their checksums where readers come back again and again.

A broker sends slices of files and sees no record. Consumers and followers do, and ask again for what they cannot use.
That is no evidence, but a reason to look.
"""

import asyncio
import contextlib
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
from barnabas.types import NO_OFFSET, Offset

__all__ = ["BatchChecks"]

_CHECKED_BYTES: Final = 1024 * 1024
_WAITING_MAX: Final = 64
"""The suspected batches of a replica."""
_PAUSE_S: Final = 0.2
"""The time between two checks: a consumer that waits for many bytes reads from the same offset again and again, too."""


class BatchChecks:
    """Used on the event loop's thread. One check is made at a time. Other suspected batches wait meanwhile, each for
    its turn: readers of whole logs that begin anew come to all batches again and again, of which one is damaged. The
    replicas take turns as well, and with them the logs that are checked as a whole."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor, failures: FailureLog) -> None:
        self._loop = loop
        self._threads = threads
        self._failures = failures
        self._is_busy = False
        self._pause: asyncio.TimerHandle | None = None
        self._suspected: dict[Partition, dict[Offset, None]] = {}
        """The replicas whose batches are looked at next, with the offsets of these. Readers come back to what has no
        room here."""
        self._waiting: dict[UnifiedLog, Offset] = {}
        """The logs that are checked as a whole next, with the base offset of the last segment that was checked."""
        self._is_turn_of_logs = False

    def stop(self) -> None:
        """Begins no further check. One of a segment may be under way."""
        self._is_busy = True
        self._suspected.clear()
        self._waiting.clear()
        if self._pause is not None:
            self._pause.cancel()

    def suspect(self, partition: Partition, offset: Offset) -> None:
        """Checks the batches from the one with this offset on, and notes in the log what is wrong with them."""
        if self._is_busy:
            offsets = self._suspected.setdefault(partition, {})
            if len(offsets) < _WAITING_MAX:
                offsets[offset] = None
            return
        log = partition.log
        with contextlib.suppress(KafkaError):  # that is noted, or the offset is gone
            end = log.log_end_offset
            self._check(log, log.read(offset, _CHECKED_BYTES, upper_bound=end, min_one_message=True).file_slice)

    def suspect_log(self, log: UnifiedLog) -> None:
        """Checks all batches of a log, one segment after the other: each costs a descriptor, and an end of the broker
        waits for the one under way."""
        self._waiting.setdefault(log, NO_OFFSET)
        if not self._is_busy:
            self._go_on()

    def _check(self, log: UnifiedLog, part: FileSlice | None) -> None:
        if self._is_busy or log.damage.found or not isinstance(part, HeldSlice):
            return
        if isinstance(part.owner, LogSegment):
            self._is_busy = True
            done = self._loop.run_in_executor(self._threads, part.owner.why_damaged, part, part.owner.size)
            done.add_done_callback(partial(self._checked, log, log.truncations))

    def _checked(self, log: UnifiedLog, truncations: int, done: "asyncio.Future[str]") -> None:
        if done.cancelled():
            return  # the broker stops
        self._pause = self._loop.call_later(_PAUSE_S, self._go_on)
        error = done.exception()
        if error is not None:
            self._failures.report(f"checking {log.topic_partition}", error)
        elif (found := done.result()) and log.truncations == truncations:
            log.damage.note(found)

    def _go_on(self) -> None:
        self._is_busy = False
        self._is_turn_of_logs = not self._is_turn_of_logs
        if self._is_turn_of_logs:
            self._check_waiting()
        self._check_suspected()
        self._check_waiting()

    def _check_suspected(self) -> None:
        while self._suspected and not self._is_busy:
            partition, offsets = next(iter(self._suspected.items()))
            del self._suspected[partition]
            offsets.pop(offset := next(iter(offsets)))
            if offsets:
                self._suspected[partition] = offsets  # behind the others
            self.suspect(partition, offset)

    def _check_waiting(self) -> None:
        while self._waiting and not self._is_busy:
            log, checked = next(iter(self._waiting.items()))
            segment = next((each for each in log.segments if each.base_offset > checked and each.size), None)
            if segment is None or log.damage.found:
                del self._waiting[log]
                continue
            self._waiting[log] = segment.base_offset
            try:
                self._check(log, segment.slice(0, segment.size))
            except OSError as error:
                self._failures.report(f"checking {log.topic_partition}", error)
