"""Makes a log durable in three steps, so that a thread can wait for the disk.

The log's thread prepares the flush (lists the files), any thread runs the fsyncs, and the log's thread completes it:
the recovery point moves, unless segments were removed or records truncated meanwhile.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from barnabas.clock import Clock
from barnabas.errors import KafkaStorageError
from barnabas.log.directories.checkpoints import distrust_page_cache
from barnabas.log.directories.disk import Disk
from barnabas.log.indexes.transaction_index import TransactionIndex
from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.log_segment import LogSegment
from barnabas.types import Offset, TopicPartition

__all__ = ["FlushTask", "prepare_flush"]


class FlushableLog(Protocol):
    """The parts of a log that a flush uses."""

    directory: str
    topic_partition: TopicPartition
    recovery_point: Offset
    last_flush_ms: int
    offline_reason: str | None
    files_made: int
    files_synced: int
    sync_lock: threading.Lock
    clock: Clock
    disk: Disk
    truncations: int
    active_segment: LogSegment
    indexes_synced_to: Offset
    leader_epochs: LeaderEpochFileCache

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def flush_point(self) -> Offset: ...

    def newest_segments(self) -> Iterator[LogSegment]: ...

    def holds(self, segments: Sequence[LogSegment]) -> bool: ...

    def check_online(self) -> None: ...

    def storage_error(self, error: OSError) -> KafkaStorageError: ...

    def take_offline(self, reason: str) -> KafkaStorageError: ...


class FlushTask:
    """The fsyncs that one log needs. Only one file at a time is open for them."""

    __slots__ = (
        "_directories",
        "_epoch_writes",
        "_files_made",
        "_indexes",
        "_indexes_up_to",
        "_log",
        "_segments",
        "_transactions",
        "_truncations",
        "error",
        "up_to",
    )

    def __init__(
        self,
        log: FlushableLog,
        segments: list[LogSegment],
        indexes: list[str],
        transactions: TransactionIndex | None,
        directories: list[str],
        up_to: Offset,
    ) -> None:
        """The task syncs `segments`, oldest first, the files `indexes` beside them, and the names in `directories`.

        `transactions` is the index of the active segment if it has entries that are not on the device.
        """
        self.up_to = up_to
        self.error: OSError | None = None
        self._log = log
        self._segments = segments
        self._indexes = indexes
        self._indexes_up_to = min(up_to, log.active_segment.base_offset)
        self._transactions = (transactions, len(transactions)) if transactions is not None else None
        self._directories = directories
        self._files_made = log.files_made if directories else 0
        self._epoch_writes = log.leader_epochs.writes if log.leader_epochs.path in indexes else 0
        self._truncations = log.truncations

    def run(self) -> None:
        """Runs the fsyncs and blocks. `complete` reports a failure.

        After a failed fsync the log is offline: the kernel may have dropped the pages that it could not write, and the
        next fsync would succeed without them. A file that cannot be opened, because no descriptor is free, does not
        take the log offline.
        """
        log = self._log
        fdatasync = log.disk.fdatasync
        with log.sync_lock:
            if log.offline_reason is not None:
                return  # an earlier sync failed, which the kernel reports only once
            try:
                for segment in self._segments:
                    held = segment.held_file
                    if held is not None:
                        self._sync(held.fd, fdatasync)
                    else:
                        self._sync_path(segment.path(".log"), fdatasync)
                for path in self._indexes:
                    self._sync_path(path, fdatasync)
                for path in self._directories:
                    self._sync_path(path, os.fsync)
            except OSError as error:
                self.error = error

    def _sync_path(self, path: str, sync: Callable[[int], None]) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # never made, or removed meanwhile with its segment or log
        try:
            self._sync(fd, sync)
        finally:
            os.close(fd)

    def _sync(self, fd: int, sync: Callable[[int], None]) -> None:
        try:
            sync(fd)
        except OSError as error:
            distrust_page_cache(os.path.dirname(self._log.directory))
            self._log.take_offline(f"fsync in {self._log.directory}: {error.strerror}")
            raise

    def complete(self) -> bool:
        """Advances the recovery point. Returns False if segments of the task were removed or truncated meanwhile.

        Raises KafkaStorageError if a sync failed or a file could not be opened.
        """
        log = self._log
        log.check_online()
        if self.error is not None:
            raise KafkaStorageError(
                f"{log.topic_partition} in {log.directory}: not synced: {self.error.strerror}"
            ) from self.error
        log.files_synced = max(log.files_synced, self._files_made)
        log.leader_epochs.note_synced(self._epoch_writes)
        if log.truncations != self._truncations or not log.holds(self._segments):
            return False
        if self._transactions is not None:
            index, entries = self._transactions
            index.note_synced(entries)
        log.recovery_point = max(log.recovery_point, self.up_to)
        log.indexes_synced_to = max(log.indexes_synced_to, self._indexes_up_to)
        return True


def prepare_flush(log: FlushableLog, up_to: Offset, *, closing: bool = False) -> FlushTask | None:
    """Returns the task that syncs the records between the flush point and `up_to`; None if there is nothing to do.

    A recovery that starts within the active segment builds its offset and time index anew: only a log that is `closing`
    needs them on the device. The name of its directory is left to the caller then. Raises KafkaStorageError.
    """
    log.check_online()
    flush_point = log.flush_point
    is_due = up_to > flush_point
    if not is_due and not closing:
        return None
    active = log.active_segment
    epochs = log.leader_epochs
    try:
        epochs.write_if_dirty()
        transactions = active.transaction_index_if_any()
        if transactions is not None:
            transactions.write_tail()
            if transactions.is_synced:
                transactions = None
    except OSError as error:
        raise log.storage_error(error) from error
    are_epochs_synced = epochs.writes == epochs.writes_synced
    are_names_synced = log.files_made == log.files_synced
    is_changed = transactions is not None or active.are_indexes_changed or not (are_epochs_synced and are_names_synced)
    if not (is_due or is_changed):
        return None
    segments: list[LogSegment] = []
    indexes: list[str] = []
    end = log.log_end_offset
    for segment in log.newest_segments():
        if end <= flush_point and segments:
            break
        if segment.base_offset < up_to or closing:
            segments.append(segment)
            if segment is not active:
                indexes += (segment.path(".index"), segment.path(".timeindex"), segment.path(".txnindex"))
            elif closing:
                indexes += (segment.path(".index"), segment.path(".timeindex"))
        end = segment.base_offset
    if transactions is not None:
        indexes.append(transactions.path)
    if not are_epochs_synced:
        indexes.append(epochs.path)
    directories: list[str] = []
    if closing or not (are_names_synced and are_epochs_synced):
        directories.append(log.directory)
        if not closing:
            directories.append(os.path.dirname(log.directory))
    log.last_flush_ms = log.clock.wall_ms()
    return FlushTask(log, segments[::-1], indexes, transactions, directories, up_to)
