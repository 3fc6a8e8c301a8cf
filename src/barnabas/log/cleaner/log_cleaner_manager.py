"""Chooses the log to clean and puts the cleaned segments in place. One log at a time; a process does the work.

Every function is a plain call on the logs' thread. A worker that dies costs its work and nothing else: segments are
put into the log here, one group after the other, and only if the log still has those they were made of.
"""

import logging
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

from barnabas.clock import Clock
from barnabas.errors import KafkaStorageError
from barnabas.log.cleaner.cleanable_logs import LogToClean, cleanable
from barnabas.log.cleaner.cleaner_protocol import CleanerConfig, CleaningJob
from barnabas.log.cleaner.segment_swap import cleaned_files, swap_in
from barnabas.log.directories.deletion_queue import remove
from barnabas.log.directories.disk import fsync_directory
from barnabas.log.log_manager import LogManager
from barnabas.log.log_segment import LogSegment
from barnabas.log.unified_log import UnifiedLog
from barnabas.out_of_memory import end_if_out_of_memory
from barnabas.types import Offset, TopicPartition

__all__ = ["CleanerWorker", "CleaningState", "LogCleanerManager"]

DEATHS_MAX: Final = 3
"""The number of deaths of the process over one log after which the log is no longer cleaned."""
RETRY_MAX_MS: Final = 10 * 60 * 1000
SILENCE_MAX_S: Final = 300.0
"""The time without an event after which the process is killed. It sends events every few seconds, except during a
sync."""

_log = logging.getLogger(__name__)


class CleanerWorker(Protocol):
    """The process that cleans, started for the first job."""

    def submit(self, job: CleaningJob) -> None:
        """Starts a job. `LogCleanerManager.event` gets its events, and `LogCleanerManager.ended` is called if the
        process ends early. Raises OSError if no process can be started."""

    def kill(self) -> None:
        """Kills the process. `LogCleanerManager.ended` is called afterwards."""


@dataclass(slots=True)
class CleaningState:
    """The state of a log's cleanings since the broker started."""

    last_cleaned_ms: int = -1
    bytes_before: int = 0
    bytes_after: int = 0
    horizon_ms: int = -1
    """The time at which tombstones or end markers in the log may be removed; -1 if there are none or it is unknown."""
    uncleanable: str = ""
    """The reason why the log is no longer cleaned; empty if it is."""
    failure: str = ""
    """The reason why the last cleaning failed."""
    failures: int = 0
    deaths: int = 0
    retry_ms: int = 0


class _Running(NamedTuple):
    log: UnifiedLog
    job: CleaningJob
    segments: tuple[LogSegment, ...]
    truncations: int
    size_bytes: int


class LogCleanerManager:
    """Chooses the log to clean, starts the job and swaps the cleaned segments in."""

    def __init__(
        self,
        logs: LogManager,
        worker: CleanerWorker,
        limits: Callable[[], CleanerConfig],
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called after a cleaning: `persist` is due, and the next log may be chosen."""
        self._logs = logs
        self._worker = worker
        self._limits = limits
        self._clock = clock
        self._changed = changed
        self._running: _Running | None = None
        self._heard_s = 0.0
        self._abandoned = False
        self._abandoned_for = ""
        """The failed work; empty if the log itself is the reason."""
        self._states: dict[UnifiedLog, CleaningState] = {}
        """The state of each log. The key is no name, because a later topic of the same name has its own state."""
        self._renamed: set[str] = set()
        """The log directories with renamed files that are not synced yet."""
        self._lock = threading.Lock()
        self.is_closed = False
        self.on_failure: Callable[[UnifiedLog], None] = lambda log: None
        """Called with a log that the cleaner could not read: not if it was killed, or the disk was full."""

    # -- choosing ------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> frozenset[TopicPartition]:
        """The logs that are being cleaned and that retention must not touch."""
        return frozenset((self._running.log.topic_partition,)) if self._running is not None else frozenset()

    def state(self, topic_partition: TopicPartition) -> CleaningState:
        """Returns the state of a log's cleanings."""
        log = self._logs.get(topic_partition)
        return (self._states.get(log) if log is not None else None) or CleaningState()

    def cleanable(self, log: UnifiedLog) -> LogToClean:
        """Returns the part of a log that can be cleaned now."""
        return cleanable(log.segments, log.config, log.offsets, log.cleaned_offset, self._clock.wall_ms())

    def describe(self, log: UnifiedLog) -> dict[str, Any]:
        """Describes the progress of a log's cleaning for people."""
        state, found = self.state(log.topic_partition), self.cleanable(log)
        return {
            "cleaned_offset": found.first_dirty_offset,
            "clean_bytes": found.clean_bytes,
            "dirty_bytes": found.dirty_bytes,
            "dirty_ratio": round(found.ratio, 3),
            "min_cleanable_dirty_ratio": log.config.min_cleanable_dirty_ratio,
            "last_cleaned_ms": state.last_cleaned_ms,
            "last_bytes_before": state.bytes_before,
            "last_bytes_after": state.bytes_after,
            "is_running": log.topic_partition in self.busy,
            "uncleanable": state.uncleanable,
            "failure": state.failure,
        }

    def run(self) -> bool:
        """Starts to clean the log that needs it most. Returns False if there is none, or if a cleaning is in
        progress."""
        if self.is_closed or self._running is not None:
            return False
        for gone in [log for log in self._states if self._logs.get(log.topic_partition) is not log]:
            del self._states[gone]
        chosen = self._dirtiest() or self._with_old_tombstones()
        return chosen is not None and self._begin(*chosen)

    def _candidates(self) -> list[UnifiedLog]:
        now_ms = self._clock.wall_ms()
        found = []
        for log in self._logs.logs.values():
            if not log.config.compacted or log.offline_reason is not None or log.topic_partition in self._logs.futures:
                continue
            state = self._states.get(log)
            if state is None or (not state.uncleanable and state.retry_ms <= now_ms):
                found.append(log)
        return found

    def _dirtiest(self) -> tuple[UnifiedLog, LogToClean] | None:
        best: tuple[UnifiedLog, LogToClean] | None = None
        for log in self._candidates():
            if log.active_segment.base_offset <= (log.cleaned_offset or 0):
                continue  # only the active segment is dirty: by far the most frequent case
            found = self.cleanable(log)
            if found.is_due(log.config) and (best is None or found.ratio > best[1].ratio):
                best = log, found
        return best

    def _with_old_tombstones(self) -> tuple[UnifiedLog, LogToClean] | None:
        """Returns a clean log with tombstones or end markers that may be removed now."""
        now_ms = self._clock.wall_ms()
        for log in self._candidates():
            state = self._states.get(log)
            if state is not None and 0 <= state.horizon_ms <= now_ms:
                found = self.cleanable(log)
                return log, found._replace(end_offset=found.first_dirty_offset, dirty_bytes=0)
        return None

    # -- the work ------------------------------------------------------------------------------------------------------

    def _begin(self, log: UnifiedLog, found: LogToClean) -> bool:
        everything = log.segments
        segments = tuple(
            segment for segment, following in pairwise(everything) if following.base_offset <= found.end_offset
        )
        state = self._state_of(log)
        if not segments:
            state.horizon_ms = -1  # of what is above all that is clean: the next cleaning sees it again
            return False
        end_offset = everything[len(segments)].base_offset
        try:
            for segment in everything:
                segment.write_transaction_index()  # the worker reads the files
            job = self._job(log, segments, min(found.first_dirty_offset, end_offset), end_offset)
            self._running = _Running(log, job, segments, log.truncations, sum(segment.size for segment in segments))
            self._heard_s = self._clock.monotonic()
            self._worker.submit(job)
        except OSError as error:
            self._running = None
            self._failed(log, state, f"the cleaner cannot work: {error.strerror or error}")
            return False
        return True

    def _state_of(self, log: UnifiedLog) -> CleaningState:
        return self._states.setdefault(log, CleaningState())

    def _job(
        self, log: UnifiedLog, segments: Sequence[LogSegment], first_dirty_offset: Offset, end_offset: Offset
    ) -> CleaningJob:
        config = log.config
        producers = log.active_producers()
        return CleaningJob(
            directory=log.directory,
            token=secrets.token_hex(6),
            segments=tuple((segment.base_offset, segment.size) for segment in segments),
            first_dirty_offset=first_dirty_offset,
            end_offset=end_offset,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            kept_offsets=tuple(entry.last_offset for entry in producers if 0 <= entry.last_offset < end_offset),
            marker_epochs=tuple((p.producer_id, p.producer_epoch) for p in producers if p.last_offset < 0),
            record_max_bytes=config.max_decompressed_message_bytes,
            limits=self._limits(),
        )

    def check(self) -> None:
        """Stops the cleaning of a log that was deleted or truncated or is being moved, or whose process hangs.

        Called periodically, and when logs may have been deleted.
        """
        running = self._running
        if running is not None and not self._is_current(running):
            self._abandon()
        elif running is not None and self._clock.monotonic() - self._heard_s > SILENCE_MAX_S:
            self._abandon(f"the cleaner process said nothing for {SILENCE_MAX_S:.0f} s and was killed")

    def _is_current(self, running: _Running) -> bool:
        log = running.log
        if self._logs.get(log.topic_partition) is not log or log.truncations != running.truncations:
            return False
        if log.topic_partition in self._logs.futures:
            return False  # a copy of it grows elsewhere, which would keep what is removed here
        return log.config.compacted  # an operator who removes `compact` wants to keep the present records

    def _abandon(self, failure: str = "") -> None:
        if not self._abandoned:
            self._abandoned, self._abandoned_for = True, failure
            self._worker.kill()

    def event(self, message: dict[str, Any]) -> None:
        running = self._running
        if running is None or self._abandoned:
            return
        self._heard_s = self._clock.monotonic()
        try:
            self._take(running, message)
        except Exception as error:  # what follows must not be taken for a whole cleaning
            end_if_out_of_memory(error)
            _log.exception("%s: the result of the cleaner process cannot be used", running.log.topic_partition)
            self._abandon(f"the result of the cleaner process cannot be used: {error!r}")

    def _take(self, running: _Running, message: dict[str, Any]) -> None:
        kind = message["event"]
        if kind != "failed" and not self._is_current(running):
            self._abandon()
        elif kind == "cleaned":
            self._swap(running, message["segments"])
        elif kind == "finished":
            self._finished(running, message)
        elif kind == "failed":
            self._end(message["kind"], message["reason"])

    def _swap(self, running: _Running, base_offsets: Sequence[Offset]) -> None:
        wanted = set(base_offsets)
        old = [segment for segment in running.segments if segment.base_offset in wanted]
        log = running.log
        if len(old) != len(wanted) or not old or not log.holds(old) or old[-1] is log.active_segment:
            self._abandon()
            return
        try:
            swap_in(log, old, running.job.token)
        except (OSError, KafkaStorageError) as error:
            self._abandon(f"the cleaned segment at {old[0].base_offset} cannot take its place: {error}")

    def _finished(self, running: _Running, message: dict[str, Any]) -> None:
        log, job, next_dirty_offset = running.log, running.job, message["next_dirty_offset"]
        is_dirty = job.first_dirty_offset < job.end_offset
        if is_dirty and next_dirty_offset <= job.first_dirty_offset:  # another run would stop at the same offset
            self._end("temporary", f"the cleaner came no further than offset {next_dirty_offset}")
            return
        self._running = None
        state = self._state_of(log)
        state.failures = state.deaths = state.retry_ms = 0
        state.failure = ""
        horizon_ms = message["horizon_ms"]
        state.horizon_ms = horizon_ms if horizon_ms > job.now_ms else -1
        state.last_cleaned_ms = self._clock.wall_ms()
        state.bytes_before = running.size_bytes
        state.bytes_after = sum(segment.size for segment in log.segments if segment.base_offset < job.end_offset)
        self._renamed.add(log.directory)
        if is_dirty:
            log.cleaned_offset = next_dirty_offset
        _log.info(
            "%s: cleaned up to offset %d, %d bytes of %d are left",
            log.topic_partition,
            log.cleaned_offset or 0,
            state.bytes_after,
            state.bytes_before,
        )
        self._changed()

    def persist(self) -> None:
        """Writes the checkpoints. Blocks; safe in any thread.

        The renames are synced first: after a power loss old files could come back below an offset that the checkpoint
        calls clean.
        """
        with self._lock:
            self._logs.checkpoint_cleaned_offsets(before=self._sync_names)

    def _sync_names(self, data_directory: str) -> None:
        for directory in [path for path in list(self._renamed) if os.path.dirname(path) == data_directory]:
            self._renamed.discard(directory)
            try:
                fsync_directory(directory)
            except FileNotFoundError:
                continue  # the log was deleted meanwhile
            except OSError:
                self._renamed.add(directory)
                raise

    # -- when it does not come to its end ------------------------------------------------------------------------------

    def ended(self, reason: str) -> None:
        abandoned, failure = self._abandoned, self._abandoned_for
        self._abandoned, self._abandoned_for = False, ""
        if self._running is None:
            return
        if not abandoned:
            self._end("died", reason)
        else:
            self._end("temporary" if failure else "abandoned", failure)

    def _end(self, kind: str, reason: str) -> None:
        assert self._running is not None
        running, self._running = self._running, None
        log = running.log
        self._logs.discard_files(cleaned_files(log.directory, running.job.token))
        if kind == "abandoned" or not self._is_current(running):
            return
        state = self._state_of(log)
        if kind == "uncleanable" or (kind == "unreadable" and not state.failures):
            self.on_failure(log)
        if kind == "died":
            state.deaths += 1
            reason = f"the cleaner process {reason}"
        if kind == "uncleanable" or state.deaths >= DEATHS_MAX:
            state.uncleanable = reason
            _log.error("%s is not cleaned any more: %s", log.topic_partition, reason)
        else:
            self._failed(log, state, reason)

    def _failed(self, log: UnifiedLog, state: CleaningState, reason: str) -> None:
        state.failure = reason
        state.retry_ms = self._clock.wall_ms() + min(RETRY_MAX_MS, 1000 << min(state.failures, 20))
        state.failures += 1
        _log.warning("%s: cleaning failed and will be tried again: %s", log.topic_partition, reason)

    def close(self) -> None:
        """Ends the work and removes the files that the process has left. The process must have been ended before."""
        self.is_closed = True
        if self._running is not None:
            log, token = self._running.log, self._running.job.token
            self._running = None
            for path in cleaned_files(log.directory, token):
                remove(path)
