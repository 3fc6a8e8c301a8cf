"""Moves a partition's log into another data directory: copies it there, and puts the copy in its place.

The copy, the future log, gets the batches as a follower's log does. While it lags far behind, a thread appends to it.
What is left then is appended between two requests, and the copy takes the place of the log in one step (Kafka:
KIP-113). Leaders and followers are moved alike.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from barnabas.config.log_config import LONG_MAX
from barnabas.errors import CorruptMessage, KafkaStorageError
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.directories.disk import fsync_directory, fsync_file
from barnabas.log.future_logs import FutureLog
from barnabas.log.log_manager import LogManager
from barnabas.log.moved_logs import forget_origin, note_origin
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.file_slice import FileSlice
from barnabas.replication import follower
from barnabas.replication.partition import Partition
from barnabas.types import LeaderEpoch, Offset

__all__ = ["LogDirMove"]

LAST_BYTES: Final = 64 * 1024
"""So much is copied between two requests at the end, in some milliseconds if the batches are tiny."""
SLICE_MIN: Final = 16 * 1024
SLICE_MAX: Final = 1024 * 1024
SLICE_S: Final = 0.005
"""The time that a slice should take in its thread, which the event loop may have to wait for."""

Work = Callable[[], object]
Epochs = list[tuple[LeaderEpoch, Offset]]


class LogDirMove:
    """The move of one replica. The thread and the event loop never use the future log at the same time."""

    def __init__(self, partition: Partition, future: FutureLog, logs: LogManager) -> None:
        self._partition = partition
        self._future = future
        self._logs = logs
        self._source = partition.log
        self._origin = logs.directory_of(partition.topic_partition)
        self._slice_bytes = SLICE_MAX // 4
        self.bytes_copied = 0
        self.is_in_place = False
        """Whether the copy is the partition's log. What fails after that costs no more than disk space."""

    def steps(self) -> Iterator[Work]:
        """Yields work that blocks, which the caller runs in any thread before it asks for the next. All else happens
        between, on the event loop's thread.

        At the end the log is moved. If the caller stops before, or anything raises KafkaStorageError, OSError or
        CorruptMessage, the partition goes on as before.
        """
        source, future = self._source, self._future
        if future.log is None:
            config = dataclasses.replace(source.config, flush_messages=LONG_MAX)
            yield partial(self._logs.open_future, future, config)
        log = future.log
        assert log is not None, future.directory
        yield from self._agree(log)
        is_flushed = False
        while True:
            if log.log_end_offset < source.log_start_offset:  # retention, or a client, has deleted what was to follow
                yield from self._agree(log)
            truncations = source.truncations
            part, is_last = self._next_part(log)
            if part is not None and not is_last:
                end = log.log_end_offset
                yield partial(self._copy, log, part)
                if source.truncations != truncations:
                    yield from self._agree(log)
                elif log.log_end_offset == end:
                    raise KafkaStorageError(f"{source}: the copy in {log.directory} does not get beyond {end}")
            elif not is_flushed:
                yield partial(self._prepare, log)
                is_flushed = True
                if source.truncations != truncations:
                    yield from self._agree(log)
            else:
                if part is not None:
                    self._copy(log, part)
                break
        self._take_place(log)
        yield from self.clean_up()

    # --- copying ----------------------------------------------------------------------------------------------------

    def _agree(self, log: UnifiedLog) -> Iterator[Work]:
        """Truncates the copy to what it has in common with the log, which may have been truncated meanwhile."""
        source, truncations = self._source, -1
        while truncations != source.truncations:
            truncations = source.truncations
            start, end = source.log_start_offset, min(source.log_end_offset, log.log_end_offset)
            agreed = _agreed_end(log.leader_epochs.entries, source.leader_epochs.entries, start, end)
            yield partial(_cut, log, start, agreed)

    def _next_part(self, log: UnifiedLog) -> tuple[FileSlice | None, bool]:
        """Returns the next part to copy, None if there is none, and whether it is the last one and small."""
        source = self._source
        source.check_online()
        end = source.log_end_offset
        offset = max(log.log_end_offset, source.log_start_offset)
        if offset == end:
            return None, True
        active = source.active_segment
        part = source.read(offset, self._slice_bytes, upper_bound=end, min_one_message=True).file_slice
        if part is None:
            raise KafkaStorageError(f"{source}: nothing can be read at {offset}")
        is_last = offset >= active.base_offset and active.size - part.position <= min(LAST_BYTES, part.size)
        return part, is_last

    def _copy(self, log: UnifiedLog, part: FileSlice) -> None:
        """Appends the whole batches of a part of the log. Appends nothing if the part was truncated meanwhile."""
        started = log.clock.monotonic()
        try:
            records = part.read()
        except EOFError:
            return
        except OSError as error:
            raise CorruptMessage(f"{self._source.directory}: {part} cannot be read: {error.strerror}") from error
        before = log.log_end_offset
        follower.append_batches(log, records)
        if log.log_end_offset > before:
            self.bytes_copied += len(records)
        took = log.clock.monotonic() - started
        if took > 2 * SLICE_S:
            self._slice_bytes = max(self._slice_bytes // 2, SLICE_MIN)
        elif took < SLICE_S / 2:
            self._slice_bytes = min(self._slice_bytes * 2, SLICE_MAX)

    # --- taking the place -------------------------------------------------------------------------------------------

    def _prepare(self, log: UnifiedLog) -> None:
        """Brings all but the last records to the disk, and notes there which directory the log comes from."""
        log.flush()
        forget_origin(self._source.directory)
        note_origin(log.directory, self._origin)

    def _take_place(self, log: UnifiedLog) -> None:
        """Makes the copy the partition's log. It has all records: nothing was appended since."""
        source = self._source
        source.check_online()
        if log.log_end_offset != source.log_end_offset:
            raise KafkaStorageError(f"{source}: the copy {log} in {log.directory} has other records")
        log.prepare_to_replace(source)
        self._logs.move_into_place(self._future)
        self.is_in_place = True
        log.replace(source)
        self._partition.replace_log(log)

    def clean_up(self) -> Iterator[Work]:
        """Deletes the log in the directory of before when all of its records are on the disk here, with the values of
        the checkpoints. Work as that of `steps`; may be tried again after a failure."""
        logs, log = self._logs, self._future.log
        if log is None or logs.get(log.topic_partition) is not log:
            return  # it was moved again, or deleted
        yield partial(logs.mark_replaced, log.topic_partition)
        end = log.log_end_offset
        while (task := log.prepare_flush(min(end, log.log_end_offset))) is not None:
            yield task.run
            task.complete()
        yield partial(_complete, logs, log, self._future.home)
        if not self._partition.is_retired:
            yield partial(_forget, logs, log, self._origin)


def _complete(logs: LogManager, log: UnifiedLog, home: DataDirectory) -> None:
    """Brings leader epochs, names and checkpoints to the disk."""
    fsync_file(log.leader_epochs.path)
    fsync_directory(log.directory)
    fsync_directory(home.path)
    logs.write_checkpoints(home)


def _forget(logs: LogManager, log: UnifiedLog, origin: DataDirectory) -> None:
    logs.drop_replaced(log.topic_partition)
    fsync_directory(origin.path)
    forget_origin(log.directory)


def _cut(log: UnifiedLog, start: Offset, end: Offset) -> None:
    """Truncates a copy to `end`. Below `start` there is nothing to keep: the copy begins anew there."""
    if end <= start:
        log.truncate_fully_and_start_at(start)
    else:
        log.truncate_to(end)


def _agreed_end(ours: Epochs, theirs: Epochs, start: Offset, end: Offset) -> Offset:
    """Returns the offset up to which two logs have the same records from `start` to `end`: those of the same leader
    epoch at the same offset are."""
    bounds = (offset for _, offset in (*ours, *theirs) if start < offset < end)
    for offset in sorted({start, *bounds}):
        if _epoch_at(ours, offset) != _epoch_at(theirs, offset):
            return offset
    return end


def _epoch_at(entries: Epochs, offset: Offset) -> LeaderEpoch | None:
    return next((epoch for epoch, first in reversed(entries) if first <= offset), None)
