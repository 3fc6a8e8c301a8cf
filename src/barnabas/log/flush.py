"""Making a log durable, cut in three so that the waiting can happen in another thread.

The log's thread prepares (says which files), any thread runs the fsyncs, the log's thread completes (the recovery point
moves, unless segments went or records were cut off meanwhile).
"""

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.errors import KafkaStorageError
from barnabas.log.directories.checkpoints import RUNNING
from barnabas.log.indexes.transaction_index import TransactionIndex
from barnabas.log.log_segment import LogSegment

if TYPE_CHECKING:
    from barnabas.log.unified_log import UnifiedLog

__all__ = ["FlushTask", "prepare_flush"]


class FlushTask:
    """The fsyncs that one log needs. One descriptor at a time is open for them, however many files there are."""

    __slots__ = (
        "_directories",
        "_files_made",
        "_indexes",
        "_log",
        "_segments",
        "_transactions",
        "_truncations",
        "error",
        "up_to",
    )

    def __init__(
        self,
        log: "UnifiedLog",
        segments: list[LogSegment],
        indexes: list[str],
        transactions: TransactionIndex | None,
        directories: list[str],
        up_to: int,
    ) -> None:
        """`segments`, oldest first, are synced with the `indexes` at these paths, with `transactions`, the active
        segment's index where it has to be, and with the names in `directories`."""
        self.up_to = up_to
        self.error: OSError | None = None
        self._log = log
        self._segments = segments
        self._indexes = indexes
        self._transactions = (transactions, len(transactions)) if transactions is not None else None
        self._directories = directories
        self._files_made = log.files_made if directories else 0
        self._truncations = log.truncations

    def run(self) -> None:
        """Sync; blocks. A failure is kept for `complete`.

        The kernel may have dropped the pages that it could not write, and a further sync would succeed without them,
        on a full disk (file systems that allocate late) as on a broken one: the log takes no more writes until a
        restart has read what is really there. A file that cannot be opened, for want of descriptors, is none of that.
        """
        log = self._log
        fdatasync = log.disk.fdatasync
        with log.sync_lock:
            if log.offline_reason is not None:
                return  # the sync before this one failed, and the kernel tells that only once
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
            return  # never made, or gone with its segment or log meanwhile
        try:
            self._sync(fd, sync)
        finally:
            os.close(fd)

    def _sync(self, fd: int, sync: Callable[[int], None]) -> None:
        try:
            sync(fd)
        except OSError as error:
            _distrust_page_cache(os.path.dirname(self._log.directory))
            self._log.take_offline(f"fsync in {self._log.directory}: {error.strerror}")
            raise

    def complete(self) -> bool:
        """Advance the recovery point; False if segments of the task are gone or were cut, so that it may have synced
        something else than the log has. Raises KafkaStorageError if a sync failed, or a file could not be opened."""
        log = self._log
        log.check_online()
        if self.error is not None:
            raise KafkaStorageError(
                f"{log.topic_partition} in {log.directory}: not synced: {self.error.strerror}"
            ) from self.error
        log.files_synced = max(log.files_synced, self._files_made)
        if log.truncations != self._truncations or not log.holds(self._segments):
            return False
        if self._transactions is not None:
            index, entries = self._transactions
            index.note_synced(entries)
        log.recovery_point = max(log.recovery_point, self.up_to)
        return True


def _distrust_page_cache(data_dir: str) -> None:
    """Have the next start read from the device, not from the cache, which may hold what could not be written."""
    with contextlib.suppress(OSError):
        os.unlink(f"{data_dir}/{RUNNING}")


def prepare_flush(log: "UnifiedLog", up_to: int, *, closing: bool = False) -> FlushTask | None:
    """What holds the records from the recovery point up to `up_to`. Raises KafkaStorageError.

    The active segment's offset and time index are built again when a recovery starts inside of it: only a log that is
    `closing` needs them on the device.
    """
    log.check_online()
    is_due = up_to > log.recovery_point
    if not is_due and not closing:
        return None
    active = log.active_segment
    try:
        transactions = active.transaction_index_if_any()
        if transactions is not None:
            transactions.write_tail()
            if transactions.is_synced:
                transactions = None
    except OSError as error:
        raise KafkaStorageError(f"{log.topic_partition} in {log.directory}: {error.strerror}") from error
    if not is_due and transactions is None:
        return None
    segments: list[LogSegment] = []
    indexes: list[str] = []
    end = log.log_end_offset
    for segment in log.newest_segments():
        if end <= log.recovery_point and segments:
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
    # a new log's own name, too, has to last
    directories = (
        [log.directory, os.path.dirname(log.directory)] if log.files_made > log.files_synced or closing else []
    )
    log.last_flush_ms = log.clock.wall_ms()
    return FlushTask(log, segments[::-1], indexes, transactions, directories, up_to)
