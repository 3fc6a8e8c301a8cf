"""A segment: a file of batches with its indexes, named after the first offset that it may contain.

Kafka's names: `00000000000000000042.log` with `.index`, `.timeindex` and, once a transaction was aborted, `.txnindex`.
"""

import contextlib
import errno
import logging
import os
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.errors import CorruptMessage
from barnabas.log.batch_scan import find_batch, scan_headers, scan_verified, why_not_a_batch
from barnabas.log.directories.disk import Disk, HeldSlice, OpenFile, ResourcePool
from barnabas.log.indexes.offset_index import OffsetIndex
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.time_index import TimeIndex
from barnabas.log.indexes.transaction_index import TransactionIndex
from barnabas.log.log_damage import LogDamage, is_disk_error
from barnabas.records.batch import BATCH_LENGTH_OVERHEAD, HEADER_SIZE, MAGIC, BatchHeader
from barnabas.records.compiled.mypyc_types import mypyc_attr
from barnabas.types import NO_TIMESTAMP, Offset

__all__ = ["DELETED_SUFFIX", "SEGMENT_SUFFIXES", "LogSegment", "SegmentWriteFailed", "file_name"]

_log = logging.getLogger(__name__)

DELETED_SUFFIX: Final = ".deleted"
OFFSET_DELTA_MAX: Final = 2**31 - 1
ASK_FIRST_TIMESTAMP: Final = -(2**63)
"""The value of roll_after_timestamp with which every append calls `is_due`."""
SEGMENT_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
_RING: Final = 128
"""The number of the last batches that a segment remembers: reads at the end find them without reading the file."""

_ROOM_AFTER_FULL: Final = 1 << 20
"""The room that a disk has again before a segment that found it full takes records: what is less may be lent by a
`SpaceReserve` to another write, of any broker on that disk."""

_LOCATE_BLOCK: Final = 4096
_BATCH_LENGTH_MIN: Final = HEADER_SIZE - BATCH_LENGTH_OVERHEAD
_LOCATED: Final = Struct(">qi4xb6xi")
"""base_offset, batch_length, magic, last_offset_delta: the part of a header that a search for an offset needs."""


def file_name(offset: Offset, suffix: str) -> str:
    """`file_name(42, ".log")` is `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


@mypyc_attr(native_class=False)
class SegmentWriteFailed(OSError):
    """The batch could not be written. `tail_is_clean` says that the written part has been removed."""

    def __init__(self, cause: OSError, tail_is_clean: bool) -> None:
        super().__init__(cause.errno, str(cause))
        self.tail_is_clean = tail_is_clean


def _until_here(file: OpenFile | None) -> None:
    """Keeps a file open up to this place of the caller.

    Compiled code drops a local variable after its last use, and the old value of an attribute before it sets the new
    one. A descriptor without a reference is closed, other threads run meanwhile, and find the dead file in the
    attribute, or another file under the number.
    """


class LogSegment:
    """Appends at the end, finds offsets and timestamps. Knows its own files only; the log decides when to roll."""

    __slots__ = (
        "_are_indexes_rebuilt",
        "_bytes_since_index",
        "_disk",
        "_disk_was_full",
        "_file",
        "_first_timestamp",
        "_has_transaction_index",
        "_pool",
        "_ring_last_offsets",
        "_ring_positions",
        "_transaction_index",
        "base_offset",
        "created_ms",
        "damage",
        "directory",
        "index_entries_left",
        "index_interval_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "recently_used",
        "roll_after_timestamp",
        "roll_ms",
        "size",
        "time_index",
    )

    def __init__(
        self, directory: str, base_offset: Offset, config: LogConfig, *, disk: Disk, pool: ResourcePool, created_ms: int
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.recently_used = False
        self.damage: LogDamage | None = None
        """That of the log; None while it is loaded, and what cannot be read may still be cut off."""
        self._are_indexes_rebuilt = False
        self.offset_index = OffsetIndex(self.path(".index"), base_offset, disk, pool)
        self.time_index = TimeIndex(self.path(".timeindex"), base_offset, disk, pool)
        self._transaction_index: TransactionIndex | None = None
        self._has_transaction_index: bool | None = None  # not looked up yet
        self._disk = disk
        self._disk_was_full = False
        self._pool = pool
        self._file: OpenFile | None = None
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._ring_last_offsets: list[Offset] = []
        self._ring_positions: list[int] = []
        self.roll_after_timestamp = LONG_MAX
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Applies the topic's settings, also when they change."""
        self.index_interval_bytes = config.index_interval_bytes
        self.roll_ms = config.roll_ms - (random.randrange(config.segment_jitter_ms) if config.segment_jitter_ms else 0)
        # the roll adds one entry to the time index; before, it has at most as many as the offset index
        most = min(
            config.segment_index_bytes // OffsetIndex.entry.size, config.segment_index_bytes // TimeIndex.entry.size - 1
        )
        self.index_entries_left = most - len(self.offset_index)
        if self.size:
            self.roll_after_timestamp = ASK_FIRST_TIMESTAMP

    def __repr__(self) -> str:
        return f"LogSegment({self.path('.log')}, size={self.size})"

    def path(self, suffix: str) -> str:
        """Returns the path of one of the segment's files."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    # -- opening and closing -------------------------------------------------------------------------------------------

    def create(self, preallocate_bytes: int = 0) -> None:
        """Makes an empty file, and replaces one that a crash has left."""
        self._file = file = OpenFile(self._pool.open(self._disk.open, self.path(".log")))
        self._pool.add(self)
        self._disk.ftruncate(file.fd, 0)
        if preallocate_bytes:
            self._disk.ftruncate(file.fd, preallocate_bytes)
        self.offset_index.reset()
        self.time_index.reset()

    def load(self) -> None:
        """Loads existing files. Raises FileNotFoundError, or CorruptIndex if the indexes must be rebuilt."""
        status = os.stat(self.path(".log"))
        self.size = status.st_size
        self.created_ms = status.st_mtime_ns // 1_000_000
        self.offset_index.load()
        self.time_index.load()
        self.offset_index.sanity_check(self.size)
        self.time_index.sanity_check()
        self.index_entries_left -= len(self.offset_index)
        self.roll_after_timestamp = ASK_FIRST_TIMESTAMP if self.size else LONG_MAX
        if len(self.time_index):
            self.max_timestamp, self.max_timestamp_offset = self.time_index.last_entry()

    def changed_ms(self) -> int:
        """The time of the last write to the file."""
        return os.stat(self.path(".log")).st_mtime_ns // 1_000_000

    def open_file(self) -> OpenFile:
        """Returns the open file, and opens it anew if the pool has closed it."""
        self.recently_used = True
        file = self._file
        if file is None:
            file = self._file = OpenFile(self._pool.open(self._disk.open_existing, self.path(".log")))
            self._pool.add(self)
        return file

    @property
    def held_file(self) -> OpenFile | None:
        """The open file, if it is open. Safe in any thread; the file stays open as long as the caller holds it."""
        return self._file

    def release(self) -> None:
        """Releases the file, which is closed when no slice refers to it any more."""
        file = self._file
        self._file = None
        _until_here(file)

    @property
    def are_indexes_changed(self) -> bool:
        """Whether the files of the offset and time index were changed since the segment was made or loaded."""
        return self.offset_index.is_changed or self.time_index.is_changed

    def seal(self) -> None:
        """Writes the indexes completely, when the segment gets no more appends or is closed."""
        if self.max_timestamp != NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write_tail()
        self.time_index.write_tail()
        self.write_transaction_index()
        file = self.open_file()
        size = os.fstat(file.fd).st_size
        _until_here(file)
        if size != self.size:  # preallocated
            self._cut(self.size)
        self._ring_last_offsets.clear()
        self._ring_positions.clear()

    def close(self) -> None:
        """Closes file and maps without writing anything."""
        self.release()
        self._pool.discard(self)
        self.offset_index.release()
        self.time_index.release()

    def rename_directory(self, directory: str) -> None:
        """Uses the new name of the log's directory."""
        self.directory = directory
        self.offset_index.path = self.path(".index")
        self.time_index.path = self.path(".timeindex")
        if self._transaction_index is not None:
            self._transaction_index.path = self.path(".txnindex")

    def mark_deleted(self) -> Iterator[str]:
        """Renames the files to `*.deleted` and closes them. Yields the paths to remove later. Raises OSError; a next
        call goes on with the files that are left."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            try:
                os.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            yield path + DELETED_SUFFIX

    def remove(self) -> None:
        """Removes the files at once. Raises OSError after it has tried all of them."""
        self.close()
        failure: OSError | None = None
        for suffix in SEGMENT_SUFFIXES:
            try:
                os.unlink(self.path(suffix))
            except FileNotFoundError:
                continue
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure

    # -- appending -----------------------------------------------------------------------------------------------------

    def append(self, buffers: Sequence[bytes | memoryview], size: int, last_offset: Offset, max_timestamp: int) -> None:
        """Appends one batch. Raises SegmentWriteFailed, after which the segment is as before."""
        position = self.size
        self._write(buffers, size, position)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_index = 0
            self.index_entries_left -= 1
        if self._first_timestamp is None:
            self._note_first_timestamp(max_timestamp)
        self._bytes_since_index += size
        self.size = position + size
        last_offsets = self._ring_last_offsets
        last_offsets.append(last_offset)
        self._ring_positions.append(position)
        if len(last_offsets) >= _RING:
            del last_offsets[: _RING // 2]
            del self._ring_positions[: _RING // 2]

    def append_run(self, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Appends the batches with these headers, which have their offsets already, with one write."""
        self._write((data,), len(data), self.size)
        # the latest positions are those of a leader: with a gap in them, `locate` would skip these batches
        self._ring_last_offsets.clear()
        self._ring_positions.clear()
        for header in headers:
            self.note_batch(self.size, header)
            self.size += header.size_bytes

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Notes a batch that was written at this position, for the indexes."""
        last_offset, max_timestamp = header.last_offset, header.max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_index = 0
            self.index_entries_left -= 1
        if self._first_timestamp is None:
            self._note_first_timestamp(max_timestamp)
        self._bytes_since_index += header.size_bytes

    def index_next(self) -> None:
        """Has the next batch that is noted get an index entry, because one before it is damaged."""
        self._bytes_since_index = self.index_interval_bytes + 1

    def _write(self, buffers: Sequence[bytes | memoryview], size: int, position: int) -> None:
        try:
            file = self._file or self.open_file()
        except OSError as error:
            raise SegmentWriteFailed(error, True) from error
        try:
            if self._disk_was_full and self._disk.free_bytes(file.fd) < _ROOM_AFTER_FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = self._disk.pwritev(file.fd, buffers, position)
            if written != size:
                self._write_rest(file.fd, b"".join(buffers), written, position)
            self._disk_was_full = False
            _until_here(file)
        except OSError as error:
            self._disk_was_full = error.errno == errno.ENOSPC
            raise SegmentWriteFailed(error, self.cut_tail()) from error

    def _write_rest(self, fd: int, data: bytes, written: int, position: int) -> None:
        # a short write means that the disk fills up: the next call raises the reason
        while written < len(data):
            count = self._disk.pwritev(fd, (memoryview(data)[written:],), position + written)
            if count == 0:
                raise OSError(f"the disk takes no more than {written} of {len(data)} bytes")
            written += count

    def cut_tail(self) -> bool:
        """Removes the bytes after the last whole batch. Returns False if the disk refuses that."""
        try:
            self._cut(self.size)
        except OSError:
            return False
        return True

    def _cut(self, size: int) -> None:
        file = self.open_file()
        self._disk.ftruncate(file.fd, size)
        _until_here(file)

    # -- rolling -------------------------------------------------------------------------------------------------------

    def can_hold_offset(self, offset: Offset) -> bool:
        """Returns whether the indexes can store the offset relative to the base offset."""
        return 0 <= offset - self.base_offset <= OFFSET_DELTA_MAX

    def _note_first_timestamp(self, timestamp: int) -> None:
        self._first_timestamp = timestamp
        self.roll_after_timestamp = timestamp + self.roll_ms if timestamp >= 0 else ASK_FIRST_TIMESTAMP

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which segment.ms counts; -1 for an empty segment."""
        if self._first_timestamp is None:
            try:
                for _, header in self.headers(0):
                    self._note_first_timestamp(header.max_timestamp)
                    return header.max_timestamp
            except CorruptMessage:  # it is noted; records may still be appended
                return NO_TIMESTAMP
            return NO_TIMESTAMP
        return self._first_timestamp

    def is_due(self, now_ms: int, max_timestamp: int) -> bool:
        """Returns whether segment.ms has passed since the first record's timestamp, or since the file was made."""
        first = self.first_timestamp()
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return self.size > 0 and waited > self.roll_ms

    # -- finding -------------------------------------------------------------------------------------------------------

    def locate(self, offset: Offset) -> tuple[int, int] | None:
        """Returns position and size of the first batch whose last offset is at or after `offset`; None if there is
        none."""
        last_offsets, positions = self._ring_last_offsets, self._ring_positions
        slot = bisect_left(last_offsets, offset)
        if (slot or (positions and not positions[0])) and slot < len(positions):
            position = positions[slot]
            end = positions[slot + 1] if slot + 1 < len(positions) else self.size
            return position, end - position
        if slot and slot == len(last_offsets):
            return None
        return self._search(offset)

    def _search(self, offset: Offset) -> tuple[int, int] | None:
        """Finds a batch from its index entry on. Where the entry does not fit the segment, makes the indexes again;
        not where a batch is damaged, which would hide those behind it."""
        try:
            return self._scan_for(offset, *self.offset_index.lookup(offset))
        except (CorruptIndex, CorruptMessage) as error:
            if self.damage is None or self._are_indexes_rebuilt or not self._has_whole_batches():
                self._note(str(error))
                raise
            _log.warning("%s; rebuilding the indexes", error)
        self.rebuild_indexes()
        return self._search(offset)

    def _has_whole_batches(self) -> bool:
        end = 0
        try:
            for position, header in self.headers(0):
                end = position + header.size_bytes
        except CorruptMessage:
            return False
        return end == self.size

    def _scan_for(self, offset: Offset, indexed: Offset, position: int) -> tuple[int, int] | None:
        """Reads headers from the batch at `position` on, which has the offset `indexed` or contains it."""
        end, header_size, base = self.size, _LOCATED.size, self.base_offset
        if not 0 <= position <= end:
            raise CorruptIndex(f"{self.offset_index.path} points to byte {position} of {end}")
        unpack, highest = _LOCATED.unpack_from, indexed if position else base + OFFSET_DELTA_MAX
        block, at, wanted = b"", 0, _LOCATE_BLOCK
        while end - position >= header_size:
            if at + header_size > len(block):
                block, at = self._read_at(position, min(wanted, end - position)), 0
                if len(block) < header_size:
                    raise CorruptMessage(f"{self.path('.log')} ends at byte {position + len(block)}, {end} were there")
            base_offset, batch_length, magic, last_offset_delta = unpack(block, at)
            if (
                batch_length < _BATCH_LENGTH_MIN
                or magic != MAGIC
                or not base <= base_offset <= highest
                or batch_length > end - position - BATCH_LENGTH_OVERHEAD
            ):
                raise CorruptMessage(f"{self.path('.log')}: no batch begins at byte {position}")
            if base_offset + last_offset_delta >= offset:
                return position, batch_length + BATCH_LENGTH_OVERHEAD
            highest = base + OFFSET_DELTA_MAX
            position += batch_length + BATCH_LENGTH_OVERHEAD
            if batch_length > _LOCATE_BLOCK:
                wanted = header_size  # the next header is all that is worth reading
            at += batch_length + BATCH_LENGTH_OVERHEAD
        return None

    def timestamp_at(self, offset: Offset) -> int:
        """Returns the largest timestamp of the batch that contains `offset`; -1 if there is none."""
        found = self.locate(offset)
        header = next((header for _, header in self.headers(found[0])), None) if found is not None else None
        return NO_TIMESTAMP if header is None else header.max_timestamp

    def _read_at(self, position: int, size: int) -> bytes:
        try:
            file = self.open_file()
            data = self._disk.pread(file.fd, size, position)
            _until_here(file)
            return data
        except OSError as error:
            self._note_read_error(position, error)
            raise

    def why_damaged(self, part: HeldSlice, size: int) -> str:
        """Reads the batches of a slice with their checksums, and returns what is wrong with the first that is damaged;
        '' if all are whole. `size` is the segment's when the slice was made. Blocks; safe in any thread. Raises
        OSError."""
        position, end, path = part.position, part.position + part.size, self.path(".log")
        try:
            next_offset = self.base_offset
            for at, header in scan_verified(self._disk, part.fd, position, size):
                if not next_offset <= header.base_offset <= header.last_offset:
                    break
                next_offset = header.next_offset
                position = at + header.size_bytes
                if position >= end:
                    return ""
            return f"{path}: byte {position}: {why_not_a_batch(self._disk, part.fd, position, size)}"
        except OSError as error:
            if not is_disk_error(error):
                raise
            return f"{path}: byte {position}: {error.strerror or error}"

    def _note_read_error(self, position: int, error: OSError) -> None:
        if is_disk_error(error):
            self._note(f"{self.path('.log')}: byte {position}: {error.strerror or error}")

    def _note(self, found: str) -> None:
        if self.damage is not None:
            self.damage.note(found)

    def slice_failed(self, failed: HeldSlice, error: Exception) -> None:
        """Notes that a slice could not be read. One that ends early may be of records that were truncated since."""
        if isinstance(error, OSError):
            self._note_read_error(failed.position, error)
            return
        try:
            size = os.stat(self.path(".log")).st_size
        except OSError:
            return  # the segment is deleted
        if size < self.size:
            self._note(f"{self.path('.log')} ends at byte {size}, {self.size} were there")

    def rebuild_indexes(self) -> bool:
        """Makes the offset and the time index again from the batches, and replaces those of before when all are read.
        Raises CorruptMessage where one is damaged, OSError. Returns whether no damaged one was passed over, as while
        the log is loaded."""
        self._are_indexes_rebuilt = True
        entries: list[tuple[Offset, int]] = []
        times: list[tuple[int, Offset]] = []
        newest = (NO_TIMESTAMP, self.base_offset)
        since = end = gaps = 0
        for position, header in self.headers(0):
            gaps += position - end
            end = position + header.size_bytes
            if not self.can_hold_offset(header.last_offset):
                found = f"{self.path('.log')}: impossible offset {header.last_offset} at byte {position}"
                self._note(found)
                raise CorruptMessage(found)
            if header.max_timestamp > newest[0]:
                newest = header.max_timestamp, header.last_offset
            if since > self.index_interval_bytes:
                entries.append((header.last_offset, position))
                times.append(newest)
                since = 0
            since += header.size_bytes
        self.clear_indexes()
        for last_offset, position in entries:
            self.offset_index.append(last_offset, position)
        for timestamp, offset in [*times, newest]:
            self.time_index.maybe_append(timestamp, offset)
        self.max_timestamp, self.max_timestamp_offset = newest
        self.index_entries_left -= len(entries)
        self._bytes_since_index = since
        with contextlib.suppress(OSError):
            self.offset_index.write_tail()
            self.time_index.write_tail()
        return not gaps

    def clear_indexes(self) -> None:
        """Removes all entries of the offset and time index. Raises OSError."""
        entries = len(self.offset_index)
        self.offset_index.reset()
        self.time_index.reset()
        self.index_entries_left += entries
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last_entry()
        self._bytes_since_index = 0

    def whole_bytes(self, position: int, first_size: int, limit: int) -> int:
        """Returns the size of whole batches within `limit`, as far as the index knows, at least `first_size`. A batch
        that is cut off would be sent twice. Returns `limit` if the index knows no boundary."""
        end = self.offset_index.lookup_position(position + limit)[1]
        return end - position if position + first_size <= end <= position + limit else limit

    def slice(self, position: int, size: int) -> HeldSlice:
        """Returns a slice of the file, which stays open as long as the slice lives."""
        return HeldSlice(self._file or self.open_file(), position, size, self)

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yields position and header of each batch. Raises CorruptMessage where one is damaged; while the log is
        loaded, it is passed over."""
        if not 0 <= position <= self.size:
            raise CorruptIndex(f"{self.offset_index.path} points to byte {position} of {self.size}")
        return self._headers(self.open_file(), position)

    def _headers(self, file: OpenFile, position: int) -> Iterator[tuple[int, BatchHeader]]:
        size, base, next_offset = self.size, self.base_offset, self.base_offset
        start: int | None = position
        try:
            while start is not None:
                for found in scan_headers(self._disk, file.fd, start, size):
                    yield found
                    position, next_offset = found[0] + found[1].size_bytes, found[1].next_offset
                if position >= size or start == size:
                    return
                if self.damage is not None:
                    why = why_not_a_batch(self._disk, file.fd, position, size)
                    self._note(f"{self.path('.log')}: byte {position}: {why}")
                    raise CorruptMessage(f"{self.path('.log')}: byte {position}: {why}")
                start = find_batch(self._disk, file.fd, position, size, next_offset, Offset(base + OFFSET_DELTA_MAX))
        except OSError as error:
            self._note_read_error(position, error)
            raise

    def read(self, position: int, size: int) -> bytes:
        return self.slice(position, size).read()

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of a record, or the last change of the file if records have none. For retention."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    # -- cutting -------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> int:
        """Removes the batches from the one that contains `offset` on. Returns the number of removed bytes."""
        found = self._search(offset)
        position = found[0] if found else self.size
        dropped = self.size - position
        self.size = position
        self._cut(position)
        self._ring_last_offsets.clear()
        self._ring_positions.clear()
        entries = len(self.offset_index)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if (index := self.transaction_index_if_any()) is not None:
            index.truncate_to(offset)
        self._bytes_since_index = 0
        self.index_entries_left += entries - len(self.offset_index)
        if not position:
            self._first_timestamp = None
            self.roll_after_timestamp = LONG_MAX
        self._restore_max_timestamp()
        return dropped

    def void_slices(self) -> None:
        """Makes the slices that were read before a truncation end early. Raises OSError.

        The places of the removed batches get others, and a slow client must not be sent those. Its descriptor stays,
        but stands for an empty file from now on. Appends and reads open the file anew.
        """
        file = self._file
        if file is not None:
            path = self.path(".tmp")
            empty = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.unlink(path)
                os.dup2(empty, file.fd, inheritable=False)
                _until_here(file)
            finally:
                os.close(empty)
            self.release()
            self._pool.discard(self)

    def _restore_max_timestamp(self) -> None:
        """Restores the largest timestamp from the last time index entry and the batches after the last offset index
        entry before it."""
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last_entry()
        for _, header in self.headers(self.offset_index.lookup(self.max_timestamp_offset)[1]):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    # -- transactions --------------------------------------------------------------------------------------------------

    @property
    def transaction_index(self) -> TransactionIndex:
        """The segment's aborted transactions. The file is made with the first of them. Raises OSError,
        CorruptTransactionIndex while the file cannot be read."""
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex.load(self.path(".txnindex"), self._disk)
        return self._transaction_index

    def transaction_index_if_any(self) -> TransactionIndex | None:
        """Returns the index; None if no transaction of this segment was aborted. Raises the same errors."""
        if self._transaction_index is not None:
            return self._transaction_index
        if self._has_transaction_index is None:
            try:
                os.stat(self.path(".txnindex"))
                self._has_transaction_index = True
            except FileNotFoundError:
                self._has_transaction_index = False
        return self.transaction_index if self._has_transaction_index else None

    def write_transaction_index(self) -> None:
        """Writes the entries that a full disk has kept in memory. Raises OSError."""
        if self._transaction_index is not None:
            self._transaction_index.write_tail()
