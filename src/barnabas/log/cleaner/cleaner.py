"""Cleans a log: maps the keys of the dirty part to their last offsets, then rewrites every segment without older
records.

Reads the segments' files, writes `.cleaned` files beside them and touches nothing else. A segment that is not merged
and loses no record is not rewritten. The checksum of a batch is verified before its keys enter the map and before it is
changed: a damaged key must not delete the records of another key, and a damaged batch must not get a valid checksum.
"""

import os
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.errors import CorruptMessage
from barnabas.log.cleaner.cleanable_logs import SegmentFiles, group_segments
from barnabas.log.cleaner.cleaned_segment import CleanedSegment
from barnabas.log.cleaner.cleaned_transactions import CleanedTransactions, read_aborted_transactions
from barnabas.log.cleaner.cleaner_protocol import CleaningJob
from barnabas.records.batch import HEADER_SIZE, BatchHeader, read_header
from barnabas.records.compiled.batch_filter import BatchFilter, check_crc
from barnabas.records.compiled.offset_map import FULL, OLD_FORMAT, SPECIAL, OffsetMap, batch_size
from barnabas.records.compression import (
    LZ4,
    NONE,
    DamagedData,
    DecompressedTooLarge,
    compress,
    compress_lz4_blocks,
    decompress,
)
from barnabas.records.validation import check_record_sizes
from barnabas.types import Offset

__all__ = ["Cleaner", "CleanerHost", "Uncleanable", "map_capacity"]

KAFKA_ENTRY: Final = 24
"""The bytes of Kafka's map for a key. Ours takes 16 and uses the others for short searches: the same buffer holds as
many keys."""
ENTRY: Final = 16
BUFFER_MAX_BYTES: Final = 2**31 - 1
"""The largest buffer for a map, as in Kafka, whatever the setting says."""


class Uncleanable(Exception):
    """The log contains something that must not be cleaned. The message says what and where."""


class CleanerHost(Protocol):
    """The process in which the cleaner runs."""

    def spend(self, size: int) -> None:
        """Accounts for `size` bytes that were read or written. May wait, may raise to end the work."""

    def tell(self, event: dict[str, Any]) -> None:
        """Sends an event."""


def map_capacity(buffer_bytes: int, load_factor: float, offsets: int) -> tuple[int, int]:
    """Returns slots and keys of the map for a dirty part of so many offsets: as many keys as in Kafka, no more than
    needed."""
    buffer_bytes = min(buffer_bytes, BUFFER_MAX_BYTES)
    keys = max(1, min(int(buffer_bytes / KAFKA_ENTRY * load_factor), offsets))
    return max(min(buffer_bytes // ENTRY, keys * 5 // 3), keys) + 1, keys


class Cleaner:
    """Runs one job. `run` raises Uncleanable, OSError, the errors of the host, and InvalidRecord for a record that is
    larger than the topic allows now."""

    def __init__(self, job: CleaningJob, host: CleanerHost) -> None:
        self._job = job
        self._host = host
        self._aborted = read_aborted_transactions(job.directory)
        self._marker_epochs = dict(job.marker_epochs)
        self._kept_offsets = frozenset(job.kept_offsets)
        self._horizon_ms = -1
        self.bytes_read = 0
        self.bytes_written = 0

    def run(self) -> None:
        """Runs the job, and sends events of the map, of every cleaned group, and of the end."""
        offsets = self._build_map()
        next_dirty = offsets.latest_offset + 1
        self._host.tell({"event": "mapped", "next_dirty_offset": next_dirty, "keys": offsets.entries})
        files = [self._files(number) for number, (base, _) in enumerate(self._job.segments) if base < next_dirty]
        transactions = CleanedTransactions(self._aborted, self._job.segments[0][0])
        for group in self._groups(files, bool(offsets.entries)):
            _GroupCleaning(self, group, offsets, transactions).run()
        self._host.tell(
            {
                "event": "finished",
                "next_dirty_offset": next_dirty,
                "horizon_ms": self._horizon_ms,
                "bytes_read": self.bytes_read,
                "bytes_written": self.bytes_written,
            }
        )

    def _files(self, number: int) -> SegmentFiles:
        segments = self._job.segments
        base_offset, size = segments[number]
        next_offset = segments[number + 1][0] if number + 1 < len(segments) else self._job.end_offset
        index_bytes, time_bytes = (_size_of(self.path(base_offset, suffix)) for suffix in (".index", ".timeindex"))
        return SegmentFiles(base_offset, next_offset, size, index_bytes, time_bytes)

    def _groups(self, files: list[SegmentFiles], dirty: bool) -> list[list[SegmentFiles]]:
        if not dirty:  # a pass for old tombstones: what has none stays as it is
            return [[segment] for segment in files]
        return group_segments(files, self._job.segment_bytes, self._job.segment_index_bytes)

    def path(self, base_offset: Offset, suffix: str) -> str:
        """Returns the path of one of a segment's files."""
        return f"{self._job.directory}/{base_offset:020d}{suffix}"

    # -- the map -------------------------------------------------------------------------------------------------------

    def _build_map(self) -> OffsetMap:
        job = self._job
        limits = job.limits
        first_dirty = job.first_dirty_offset
        slots, keys = map_capacity(
            limits.dedupe_buffer_size, limits.io_buffer_load_factor, job.end_offset - first_dirty
        )
        offsets = OffsetMap(slots, keys, first_dirty)
        segments = [files for files in map(self._files, range(len(job.segments))) if files.next_offset > first_dirty]
        # The walk begins with a whole segment: below the first dirty offset, if the map before was full.
        transactions = CleanedTransactions(self._aborted, segments[0].base_offset if segments else first_dirty)

        def enter(header: BatchHeader, data: bytes, at: int) -> bool:
            if header.is_control:
                transactions.is_needed(header, memoryview(data)[at : at + header.size_bytes])
            elif not transactions.is_aborted(header) and header.last_offset >= first_dirty:
                check_crc(data, at)
                return offsets.map_batch(data, at, *uncompressed(header, data, at, job.record_max_bytes))
            offsets.skip_to(header.next_offset)
            return True

        for files in segments:
            if not self.walk(files.base_offset, files.size, offsets, offsets.map_batches, enter):
                break
            offsets.skip_to(files.next_offset)
        return offsets

    def walk(
        self,
        base_offset: Offset,
        size: int,
        batch_walk: "OffsetMap | BatchFilter",
        batches: Callable[[bytes, int], int],
        special: Callable[[BatchHeader, bytes, int], bool],
        block_done: Callable[[int], None] | None = None,
    ) -> bool:
        """Passes all batches of a segment to `batch_walk`, and to `special` where it stops. Returns False if one
        ended the walk.

        Calls `block_done` with the position after each block.
        """
        fd = os.open(self.path(base_offset, ".log"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            position, wanted = 0, self._job.limits.io_buffer_size
            while position < size:
                data = os.pread(fd, min(wanted, size - position), position)
                if len(data) < min(wanted, size - position):
                    raise Uncleanable(f"{base_offset:020d}.log: cut off at byte {position + len(data)} of {size}")
                self.bytes_read += len(data)
                self._host.spend(len(data))
                try:
                    end, enough = _walk_block(data, batch_walk, batches, special)
                except (ValueError, IndexError, CorruptMessage, DamagedData, DecompressedTooLarge) as error:
                    raise Uncleanable(f"{base_offset:020d}.log: {_words(error)}") from error
                if end and block_done is not None:
                    block_done(position + end)
                if enough:
                    return False
                wanted = self._job.limits.io_buffer_size
                if not end:
                    wanted = _next_block_size(data, size - position)
                    if not wanted:
                        raise Uncleanable(f"{base_offset:020d}.log: a batch at byte {position} is cut off")
                position += end
        finally:
            os.close(fd)
        return True

    # -- for the groups ------------------------------------------------------------------------------------------------

    @property
    def job(self) -> CleaningJob:
        return self._job

    def filter_for(self, base_offset: Offset, offsets: OffsetMap) -> BatchFilter:
        job = self._job
        return BatchFilter(
            offsets,
            base_offset=base_offset,
            now_ms=job.now_ms,
            delete_horizon_ms=job.now_ms + job.delete_retention_ms,
            kept_offsets=self._kept_offsets,
            last_kept_offset=job.end_offset - 1,
            index_interval_bytes=job.index_interval_bytes,
        )

    def wrote(self, size: int) -> None:
        """Accounts for written bytes."""
        self.bytes_written += size
        self._host.spend(size)

    def is_last_marker(self, header: BatchHeader) -> bool:
        """Returns whether an end marker must stay because nothing else in the log has its producer's epoch."""
        return self._marker_epochs.get(header.producer_id) == header.producer_epoch

    def group_done(self, event: dict[str, Any], horizon_ms: int) -> None:
        """Sends the event of a cleaned group unless nothing was changed."""
        if horizon_ms >= 0:
            self._horizon_ms = min(horizon_ms, self._horizon_ms) if self._horizon_ms >= 0 else horizon_ms
        if event:
            self._host.tell({"event": "cleaned", **event})


class _GroupCleaning:
    """The cleaning of a group of segments that become one."""

    def __init__(
        self, cleaning: Cleaner, group: list[SegmentFiles], offsets: OffsetMap, transactions: CleanedTransactions
    ) -> None:
        self._cleaning = cleaning
        self._group = group
        self._offsets = offsets
        self._transactions = transactions
        self._filter = cleaning.filter_for(group[0].base_offset, offsets)
        self._output: CleanedSegment | None = None

    def run(self) -> None:
        cleaning, group, batches = self._cleaning, self._group, self._filter
        self._transactions.kept.clear()
        alone = len(group) == 1
        try:
            for segment in group:

                def block_done(end: int, segment: SegmentFiles = segment) -> None:
                    self._write(segment, end, copy=alone)

                cleaning.walk(
                    segment.base_offset, segment.size, batches, batches.filter_batches, self._filter_special, block_done
                )
            if self._output is None and not alone:
                self._open()  # no record of the group is left
            event: dict[str, Any] = {}
            if self._output is not None:
                batches.note_time()
                self._output.finish(batches, self._transactions.kept, cleaning.path(group[-1].base_offset, ".log"))
                event = {
                    "segments": [segment.base_offset for segment in group],
                    "size": self._output.size,
                    "records_read": batches.records_read,
                    "records_kept": batches.records_kept,
                }
        finally:
            if self._output is not None:
                self._output.close()
        cleaning.group_done(event, batches.next_horizon_ms)

    def _write(self, segment: SegmentFiles, end: int, *, copy: bool) -> None:
        """Takes note of a filtered block that ends at byte `end` of the segment."""
        batches = self._filter
        parts, batches.parts = batches.parts, []
        if copy and not batches.changed:
            return
        output = self._output
        if output is None:
            output = self._open()
            if copy:
                kept = batches.size - sum(map(len, parts))
                output.copy_from(self._cleaning.path(segment.base_offset, ".log"), kept)
        output.write(parts)

    def _open(self) -> CleanedSegment:
        job = self._cleaning.job
        self._output = CleanedSegment(job.directory, self._group[0].base_offset, job.token, self._cleaning.wrote)
        return self._output

    # -- batches that need more than their bytes -----------------------------------------------------------------------

    def _filter_special(self, header: BatchHeader, data: bytes, at: int) -> bool:
        batches = self._filter
        end = at + header.size_bytes
        if header.is_control:
            needed = self._transactions.is_needed(header, memoryview(data)[at:end])
            if batches.stands_marker(data, at, needed, self._cleaning.is_last_marker(header)):
                batches.parts.append(data[at:end])
            else:
                batches.rewrite(data, at, data, at + HEADER_SIZE, end)
        elif self._transactions.is_aborted(header) and header.record_count:
            batches.discard(data, at)
        else:
            self._filter_records(header, data, at)
        return True

    def _filter_records(self, header: BatchHeader, data: bytes, at: int) -> None:
        batches = self._filter
        records, start, end = b"", 0, 0
        if batches.judges_records(data, at):
            records, start, end = uncompressed(header, data, at, self._cleaning.job.record_max_bytes)
        if batches.stands(data, at, records, start, end):
            batches.parts.append(data[at : at + header.size_bytes])
        elif batches.is_empty or header.compression_type == NONE:
            batches.rewrite(data, at, records, start, end)
        else:
            check_crc(data, at)
            kept = batches.payload(data, at, records, start, end)
            codec = header.compression_type
            batches.append_batch(data, at, compress_lz4_blocks(kept) if codec == LZ4 else compress(codec, kept))


def uncompressed(header: BatchHeader, data: bytes, at: int, record_max_bytes: int) -> tuple[bytes, int, int]:
    """Returns bytes with the uncompressed records of the batch at `at`, and their range. Raises InvalidRecord for one
    in a compressed batch that is larger than `record_max_bytes`."""
    if header.compression_type == NONE:
        return data, at + HEADER_SIZE, at + header.size_bytes
    records = decompress(header.compression_type, memoryview(data)[at + HEADER_SIZE : at + header.size_bytes])
    check_record_sizes(records, header.record_count, record_max_bytes)
    return records, 0, len(records)


def _walk_block(
    data: bytes,
    batch_walk: OffsetMap | BatchFilter,
    batches: Callable[[bytes, int], int],
    special: Callable[[BatchHeader, bytes, int], bool],
) -> tuple[int, bool]:
    """Walks whole batches. Returns the end of the last one, and whether the visitor stopped the walk."""
    at = 0
    while True:
        at = batches(data, at)
        if batch_walk.stop == SPECIAL:
            header = read_header(data, at)
            if not special(header, data, at):
                return at, True
            at += header.size_bytes
            continue
        if batch_walk.stop == OLD_FORMAT:
            raise ValueError(f"message format {data[at + 16]} at offset {int.from_bytes(data[at : at + 8], 'big')}")
        return at, batch_walk.stop == FULL


def _next_block_size(data: bytes, left: int) -> int:
    """Returns the size of the batch that does not fit into `data`; 0 if there is none."""
    if len(data) < HEADER_SIZE:
        return HEADER_SIZE if len(data) < left else 0
    size = batch_size(data, 0)
    return size if len(data) < size <= left else 0


def _words(error: Exception) -> str:
    return "the records of a batch end early" if isinstance(error, IndexError) else str(error)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
