"""Reads the complete batches of a segment file, up to the size that the file had when the query was planned."""

import logging
import os
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.errors import CorruptMessage
from barnabas.protocol.primitives import Part
from barnabas.records.batch import BATCH_LENGTH_OVERHEAD, HEADER_SIZE, MAGIC
from barnabas.records.legacy import SIZE_MIN
from barnabas.spark.segments.file_ranges import FileRange, offset_index
from barnabas.spark.source.data_loss import OnLoss, lost_for
from barnabas.types import Offset

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_range"]

_log = logging.getLogger("barnabas.spark")

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_BATCH_START: Final = Struct(">qi")
"""The base offset and the length of a batch."""
_PREFIX_BYTES: Final = 17
_MAGIC_POSITION: Final = 16
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23


class _Batch(NamedTuple):
    """The positions of a batch in the data, and its last offset."""

    start: int
    end: int
    last_offset: int


def read_range(file_range: FileRange, on_data_loss: OnLoss, *, headers: bool) -> "Iterator[pyarrow.RecordBatch]":
    """Yields the records of a range with the columns of `PartitionReader`. Raises DataLoss for damaged or missing
    batches, unless `on_data_loss` lets the query go on."""
    file = file_range.file
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        lost_for(on_data_loss, f"{file.path} is gone since the query was planned: the log's retention has deleted it")
        return
    try:
        status = os.fstat(fd)
        if status.st_ino != file.inode or status.st_size < file.size:
            what = f"{file.path} is another file since the query was planned: it was compacted or truncated"
            lost_for(on_data_loss, f"{what}; start the query again to read the new file")
            return
        yield from _FileReader(fd, file_range, on_data_loss, headers).batches()
    finally:
        os.close(fd)


class _FileReader:
    def __init__(self, fd: int, file_range: FileRange, on_data_loss: OnLoss, headers: bool) -> None:
        self._fd = fd
        self._file = file_range.file
        self._end = file_range.end
        self._aborted = file_range.aborted
        self._on_data_loss = on_data_loss
        self._headers = headers
        self._position = _first_position(file_range)
        self._next_offset = file_range.start
        self._last_offset = file_range.file.base_offset - 1
        """The last offset of the batch before; the next batch must have a larger one."""

    def batches(self) -> "Iterator[pyarrow.RecordBatch]":
        size = self._file.size
        chunk_bytes = _CHUNK_BYTES
        while self._position < size and self._next_offset < self._end:
            data = os.pread(self._fd, min(chunk_bytes, size - self._position), self._position)
            batches = self._complete_batches(data)
            if batches:
                chunk_bytes = _CHUNK_BYTES
                yield from self._decode(data, batches)
                continue
            needed = self._bytes_needed(data)
            if needed is None:
                return
            chunk_bytes = max(needed, chunk_bytes)

    # --- headers of batches -----------------------------------------------------------------------------------------

    def _complete_batches(self, data: bytes) -> list[_Batch]:
        """Returns the complete batches up to the first whose offset does not follow the one before. Only this check
        finds damaged offsets, since checksums do not cover them."""
        batches: list[_Batch] = []
        at, last_offset = 0, self._last_offset
        while len(data) - at >= _PREFIX_BYTES:
            offset, length = _BATCH_START.unpack_from(data, at)
            end = at + BATCH_LENGTH_OVERHEAD + length
            if length < SIZE_MIN or end > len(data):
                break
            if data[at + _MAGIC_POSITION] >= MAGIC and end - at >= HEADER_SIZE:
                offset += _LAST_OFFSET_DELTA.unpack_from(data, at + _LAST_OFFSET_DELTA_POSITION)[0]
            if not last_offset < offset < self._file.next_base_offset:
                break
            last_offset = offset
            batches.append(_Batch(at, end, offset))
            at = end
        return batches

    def _bytes_needed(self, data: bytes) -> int | None:
        """Returns the number of bytes to read for the next batch, after a damaged batch was reported and skipped; None
        at the end of the file."""
        remaining = self._file.size - self._position
        if len(data) < _PREFIX_BYTES:
            self._torn(f"{len(data)} bytes remain, fewer than a batch's header")
            return None
        offset, length = _BATCH_START.unpack_from(data)
        needed = int(length) + BATCH_LENGTH_OVERHEAD
        if length < SIZE_MIN:
            if self._is_preallocated(remaining):
                return None
            self._lost(f"no batch begins there: it would have the impossible length {length}", remaining)
        elif needed > remaining:
            self._torn(f"the batch there claims {needed} bytes, the file has {remaining}")
        elif needed > len(data):
            return needed
        else:
            reason = f"the batch there has offset {offset}, which cannot follow {self._last_offset}"
            if not self._file.is_newest:
                reason += f" in a file that ends before {self._file.next_base_offset}"
            self._lost(reason, needed)
            self._position += needed
            return _CHUNK_BYTES
        return None

    def _is_preallocated(self, remaining: int) -> bool:
        """Returns whether only zeros remain: Kafka may allocate files in advance (log.preallocate)."""
        at, end = self._position, self._position + remaining
        while at < end:
            data = os.pread(self._fd, min(_CHUNK_BYTES, end - at), at)
            if not data or data.count(0) != len(data):
                return False
            at += len(data)
        return True

    def _torn(self, reason: str) -> None:
        """Reports an incomplete batch. In the newest file that is a warning, since an append may be in progress."""
        if not self._file.is_newest:
            self._lost(reason, self._file.size - self._position)
            return
        _log.warning(
            "%s, byte %d: %s. The batch is left out: its broker is writing it, or stopped while it did",
            self._file.path,
            self._position,
            reason,
        )

    def _lost(self, reason: str, size: int) -> None:
        lost_for(
            self._on_data_loss,
            f"{self._file.path}, byte {self._position}: {reason} (all is intact up to offset {self._last_offset};"
            f" {size} bytes cannot be read; `barnabas dump-log --check` shows more)",
        )

    # --- records ----------------------------------------------------------------------------------------------------

    def _decode(self, data: bytes, batches: Sequence[_Batch]) -> "Iterator[pyarrow.RecordBatch]":
        """Yields the records of the batches, and moves the position behind them, or behind the first damaged batch."""
        fetch = CompletedFetch(
            self._file.partition,
            Part(data, 0, batches[-1].end),
            self._next_offset,
            aborted=self._aborted_transactions(),
        )
        last = batches[-1]
        try:
            while (batch := fetch.read_arrow(headers=self._headers)) is not None:
                batch = _below(batch, self._end)
                if len(batch):
                    yield batch
        except CorruptMessage as error:
            index = next(i for i, each in enumerate(batches) if each.last_offset >= fetch.next_offset)
            last = batches[index]
            self._last_offset = batches[index - 1].last_offset if index else self._last_offset
            self._position += last.start
            self._lost(_without_advice(error), last.end - last.start)
            self._position -= last.start
        self._position += last.end
        self._last_offset = last.last_offset
        self._next_offset = max(fetch.next_offset, last.last_offset + 1)

    def _aborted_transactions(self) -> list[tuple[int, int]] | None:
        if self._aborted is None:
            return None
        aborted = (each for each in self._aborted if each.last_offset >= self._next_offset)
        return [(each.producer_id, each.first_offset) for each in aborted]


def _first_position(file_range: FileRange) -> int:
    """Returns the last position in the index from which the first offset of the range can be read."""
    if file_range.start <= file_range.file.base_offset:
        return 0
    with offset_index(file_range.file) as index:
        return index.lookup(Offset(file_range.start))[1]


def _below(batch: "pyarrow.RecordBatch", end: int) -> "pyarrow.RecordBatch":
    offsets = batch.column("offset")
    if offsets[len(offsets) - 1].as_py() < end:
        return batch
    return batch.slice(0, sum(offset < end for offset in offsets.to_pylist()))


def _without_advice(error: CorruptMessage) -> str:
    return str(error).partition("; a seek to")[0]
