"""Making a log durable, cut in three so that the waiting can happen in another thread.

The log's thread prepares (index entries reach their files, descriptors are collected), any thread runs the fsyncs, the
log's thread completes (the recovery point moves, unless records were cut off meanwhile).
"""

import os
from typing import TYPE_CHECKING

from barnabas.errors import KafkaStorageError
from barnabas.log.disk import Disk, OpenFile, fsync_directory

if TYPE_CHECKING:
    from barnabas.log.log import Log

__all__ = ["FlushTask", "prepare_flush"]


class FlushTask:
    """The fsyncs that one log needs."""

    __slots__ = ("_directory", "_disk", "_files", "_log", "_paths", "_truncations", "error", "up_to")

    def __init__(
        self, log: "Log", disk: Disk, files: list[OpenFile], paths: list[str], directory: str | None, up_to: int
    ) -> None:
        self.up_to = up_to
        self.error: OSError | None = None
        self._log = log
        self._disk = disk
        self._files = files
        self._paths = paths
        self._directory = directory
        self._truncations = log.truncations

    def run(self) -> None:
        """Sync; blocks. A failure is kept for `complete`."""
        try:
            for file in self._files:
                self._disk.fdatasync(file.fd)
            for path in self._paths:
                self._sync_path(path)
            if self._directory is not None:
                fsync_directory(self._directory)
        except FileNotFoundError:
            return  # the log was deleted meanwhile
        except OSError as error:
            self.error = error

    def _sync_path(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # deleted by retention meanwhile
        try:
            self._disk.fdatasync(fd)
        finally:
            os.close(fd)

    def complete(self) -> None:
        """Advance the recovery point. Raises KafkaStorageError if the sync failed.

        The kernel may have dropped the pages that it could not write, and a further sync would succeed without them,
        on a full disk (file systems that allocate late) as on a broken one: the log takes no more writes until a
        restart has read what is really there.
        """
        log = self._log
        if self.error is not None:
            log.new_files = log.new_files or self._directory is not None
            log.offline_reason = reason = f"fsync in {log.directory}: {self.error.strerror}"
            raise KafkaStorageError(f"{log.topic_partition}: {reason}") from self.error
        if log.truncations == self._truncations:
            log.recovery_point = max(log.recovery_point, self.up_to)


def prepare_flush(log: "Log", up_to: int) -> FlushTask | None:
    """Collect what holds the records from the recovery point up to `up_to`. Raises KafkaStorageError."""
    if up_to <= log.recovery_point:
        return None
    files, paths = [], []
    end = log.log_end_offset
    try:
        for segment in log.newest_segments():
            if end <= log.recovery_point:
                break
            if segment.base_offset < up_to:
                files.append(segment.open_file())
                if segment is not log.active_segment:
                    # the active one's indexes are built again when a recovery starts inside of it
                    paths += [segment.path(".index"), segment.path(".timeindex"), segment.path(".txnindex")]
            end = segment.base_offset
    except OSError as error:
        raise KafkaStorageError(f"{log.topic_partition} in {log.directory}: {error.strerror}") from error
    directory = log.directory if log.new_files else None
    log.new_files = False
    log.last_flush_ms = log.clock.wall_ms()
    return FlushTask(log, log.disk, files, paths, directory, up_to)
