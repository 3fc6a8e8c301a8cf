"""Reads one segment file up to the size that it had when the query was planned; whole batches only."""

import logging
import os
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.errors import CorruptMessage
from barnabas.log.indexes.transaction_index import AbortedTransaction
from barnabas.protocol.primitives import Part
from barnabas.records.batch import BATCH_LENGTH_OVERHEAD, HEADER_SIZE, MAGIC
from barnabas.records.legacy import SIZE_MIN
from barnabas.spark.segments.cutting import offset_index
from barnabas.spark.segments.finding import SegmentFile
from barnabas.spark.source.data_loss import OnLoss, lost_for
from barnabas.types import Offset

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Piece", "read_piece"]

_log = logging.getLogger("barnabas.spark")

_CHUNK: Final = 4 * 1024 * 1024
_START: Final = Struct(">qi")
"""base_offset, batch_length."""
_PREFIX: Final = 17
_MAGIC_POSITION: Final = 16
_DELTA: Final = Struct(">i")
_DELTA_POSITION: Final = 23


class Piece(NamedTuple):
    """What one task reads."""

    file: SegmentFile
    start: int
    end: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    """Aborted transactions that touch it, None: read_uncommitted."""


class _Batch(NamedTuple):
    """A batch by its header."""

    start: int
    end: int
    last_offset: int


def read_piece(piece: Piece, on_data_loss: OnLoss, *, headers: bool) -> "Iterator[pyarrow.RecordBatch]":
    """Batches of our client's columns. Raises DataLoss for what is damaged or gone, unless the query is to go on."""
    try:
        fd = os.open(piece.file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        lost_for(on_data_loss, f"{piece.file.path} is gone since the query was planned: its log's retention took it")
        return
    try:
        status = os.fstat(fd)
        if status.st_ino != piece.file.inode or status.st_size < piece.file.size:
            what = f"{piece.file.path} is another file since the query was planned: it was compacted or cut"
            lost_for(on_data_loss, f"{what}; begin the query anew to read what is there now")
            return
        yield from _Reading(fd, piece, on_data_loss, headers).batches()
    finally:
        os.close(fd)


class _Reading:
    def __init__(self, fd: int, piece: Piece, on_data_loss: OnLoss, headers: bool) -> None:
        self._fd = fd
        self._piece = piece
        self._on_data_loss = on_data_loss
        self._headers = headers
        self._position = _first_position(piece)
        self._next_offset = piece.start
        self._last_offset = piece.file.base_offset - 1
        """Of the batch before; those that follow must be above."""

    def batches(self) -> "Iterator[pyarrow.RecordBatch]":
        size = self._piece.file.size
        want = _CHUNK
        while self._position < size and self._next_offset < self._piece.end:
            data = os.pread(self._fd, min(want, size - self._position), self._position)
            whole = self._walk(data)
            if whole:
                want = _CHUNK
                yield from self._decoded(data, whole)
                continue
            needed = self._stopped_at(data)
            if needed is None:
                return
            want = max(needed, want)

    # --- batches by their headers -----------------------------------------------------------------------------------

    def _walk(self, data: bytes) -> list[_Batch]:
        """The whole batches that follow each other, up to one that does not. Checksums leave offsets out, so this is
        all that tells of a damaged one."""
        found: list[_Batch] = []
        at, last = 0, self._last_offset
        while len(data) - at >= _PREFIX:
            offset, length = _START.unpack_from(data, at)
            end = at + BATCH_LENGTH_OVERHEAD + length
            if length < SIZE_MIN or end > len(data):
                break
            if data[at + _MAGIC_POSITION] >= MAGIC and end - at >= HEADER_SIZE:
                offset += _DELTA.unpack_from(data, at + _DELTA_POSITION)[0]
            if not last < offset < self._piece.file.next_base_offset:
                break
            last = offset
            found.append(_Batch(at, end, offset))
            at = end
        return found

    def _stopped_at(self, data: bytes) -> int | None:
        """Where not even one batch could be walked over: how many bytes it needs, None at the end of what is there."""
        left = self._piece.file.size - self._position
        if len(data) < _PREFIX:
            self._torn(f"{len(data)} bytes are left, fewer than a batch's header")
            return None
        offset, length = _START.unpack_from(data)
        needed = int(length) + BATCH_LENGTH_OVERHEAD
        if length < SIZE_MIN:
            if self._is_preallocated(left):
                return None
            self._lost(f"no batch begins there: it would have the impossible length {length}", left)
        elif needed > left:
            self._torn(f"the batch there claims {needed} bytes, the file has {left}")
        elif needed > len(data):
            return needed
        else:
            following = f"the batch there has offset {offset}, which cannot follow {self._last_offset}"
            if not self._piece.file.is_newest:
                following += f" in a file that ends before {self._piece.file.next_base_offset}"
            self._lost(following, needed)
            self._position += needed
            return _CHUNK
        return None

    def _is_preallocated(self, left: int) -> bool:
        """Kafka may make files larger than what is in them; the rest is zeros."""
        at, end = self._position, self._position + left
        while at < end:
            data = os.pread(self._fd, min(_CHUNK, end - at), at)
            if not data or data.count(0) != len(data):
                return False
            at += len(data)
        return True

    def _torn(self, what: str) -> None:
        """The end of the newest file may be in the middle of an append."""
        if not self._piece.file.is_newest:
            self._lost(what, self._piece.file.size - self._position)
            return
        _log.warning(
            "%s, byte %d: %s. It is being written, or was when its broker ended; it is left out",
            self._piece.file.path,
            self._position,
            what,
        )

    def _lost(self, what: str, size: int) -> None:
        lost_for(
            self._on_data_loss,
            f"{self._piece.file.path}, byte {self._position}: {what} (up to offset {self._last_offset} all is whole;"
            f" {size} bytes cannot be read; `barnabas dump-log --check` shows more)",
        )

    # --- records ----------------------------------------------------------------------------------------------------

    def _decoded(self, data: bytes, whole: Sequence[_Batch]) -> "Iterator[pyarrow.RecordBatch]":
        """The records of these batches; the position is then behind them, or behind one that is damaged."""
        fetch = CompletedFetch(
            self._piece.file.partition,
            Part(data, 0, whole[-1].end),
            self._next_offset,
            aborted=self._aborted(),
        )
        done = whole[-1]
        try:
            while (batch := fetch.read_arrow(headers=self._headers)) is not None:
                batch = _below(batch, self._piece.end)
                if len(batch):
                    yield batch
        except CorruptMessage as error:
            index = next(i for i, each in enumerate(whole) if each.last_offset >= fetch.next_offset)
            done = whole[index]
            self._last_offset = whole[index - 1].last_offset if index else self._last_offset
            self._position += done.start
            self._lost(_without_advice(error), done.end - done.start)
            self._position -= done.start
        self._position += done.end
        self._last_offset = done.last_offset
        self._next_offset = max(fetch.next_offset, done.last_offset + 1)

    def _aborted(self) -> list[tuple[int, int]] | None:
        aborted = self._piece.aborted
        if aborted is None:
            return None
        return [(each.producer_id, each.first_offset) for each in aborted if each.last_offset >= self._next_offset]


def _first_position(piece: Piece) -> int:
    """Where to begin for an offset within the file, as near as its index knows."""
    if piece.start <= piece.file.base_offset:
        return 0
    with offset_index(piece.file) as index:
        return index.lookup(Offset(piece.start))[1]


def _below(batch: "pyarrow.RecordBatch", end: int) -> "pyarrow.RecordBatch":
    offsets = batch.column("offset")
    if offsets[len(offsets) - 1].as_py() < end:
        return batch
    return batch.slice(0, sum(offset < end for offset in offsets.to_pylist()))


def _without_advice(error: CorruptMessage) -> str:
    return str(error).partition("; a seek to")[0]
