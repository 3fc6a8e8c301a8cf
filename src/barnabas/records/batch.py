"""The header of a v2 record batch and its CRC-32C: all that a broker has to know about the bytes that it stores.

Layout (big endian; source: the protocol's record batch format), position: field

    0 base_offset i64 · 8 batch_length i32 (bytes after this field) · 12 partition_leader_epoch i32 · 16 magic i8
    17 crc u32 (over all that follows) · 21 attributes i16 · 23 last_offset_delta i32 · 27 base_timestamp i64
    35 max_timestamp i64 · 43 producer_id i64 · 51 producer_epoch i16 · 53 base_sequence i32 · 57 record_count i32
    61 records

The checksum does not cover the first 21 bytes: a leader sets base offset and epoch without touching the rest.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas.errors import CorruptMessage
from barnabas.records.checksum import crc32c
from barnabas.types import LeaderEpoch, Offset, ProducerId

__all__ = [
    "BATCH_LENGTH_OVERHEAD",
    "HEADER_SIZE",
    "MAGIC",
    "BatchHeader",
    "Buffer",
    "crc_of",
    "increment_sequence",
    "iter_batches",
    "iter_headers",
    "pack_header",
    "read_header",
    "set_crc",
]

Buffer = bytes | bytearray | memoryview

HEADER_SIZE: Final = 61
"""Bytes before the first record."""
BATCH_LENGTH_OVERHEAD: Final = 12
"""Bytes of base offset and batch length, which the batch length does not count."""
MAGIC: Final = 2
CRC_POSITION: Final = 17
CHECKED_POSITION: Final = 21
"""The first byte that the checksum covers."""
PREFIX: Final = Struct(">qiibI")
"""base_offset, batch_length, partition_leader_epoch, magic, crc: the part that the checksum does not cover."""
CHECKED: Final = Struct(">hiqqqhii")
"""attributes to record_count: the part of the header that the checksum covers."""

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

SEQUENCE_MAX: Final = 0x7FFFFFFF

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_LENGTH_MIN: Final = HEADER_SIZE - BATCH_LENGTH_OVERHEAD


class BatchHeader(NamedTuple):
    """The thirteen fields of a v2 batch header, in the order of the wire, and properties derived from them."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + BATCH_LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        """The last offset of the batch, inclusive; compaction may have removed its record."""
        return self.base_offset + self.last_offset_delta  # type: ignore[return-value]  # a call of Offset costs time

    @property
    def next_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta + 1  # type: ignore[return-value]

    @property
    def compression_type(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock set the timestamps; max_timestamp is then the timestamp of every record."""
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp is the time from which the cleaner may drop the batch's tombstones."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, -1 if the batch has none; 0 follows 2^31-1."""
        if self.base_sequence < 0:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    """Adds to a sequence of 31 bits: `increment_sequence(2**31 - 1, 1)` is 0."""
    return (sequence + increment) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of the v2 batch at `position`. The records need not be there; the checksum is not computed.

    Raises CorruptMessage if the header is cut off, has another magic or an impossible length.
    """
    try:
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct_error:
        raise CorruptMessage(f"batch header at byte {position} is cut off") from None
    if header[3] != MAGIC:
        raise CorruptMessage(f"batch at byte {position} has magic {header[3]}, not {MAGIC}")
    if header[1] < _LENGTH_MIN:
        raise CorruptMessage(f"batch at byte {position} has length {header[1]}, a header alone has {_LENGTH_MIN}")
    return header


def pack_header(header: BatchHeader) -> bytes:
    """Returns the 61 bytes of `header`, with the crc that it has."""
    return _HEADER.pack(*header)


def iter_headers(buffer: Buffer) -> Iterator[BatchHeader]:
    """Yields the headers of the whole v2 batches in `buffer` and leaves out a torn batch at the end.

    Raises CorruptMessage at a batch without a usable length.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        position += header.size_bytes
        if position > end:
            return
        yield header


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields header and bytes of each batch that `iter_headers` finds."""
    view, position = memoryview(buffer), 0
    for header in iter_headers(view):
        end = position + header.size_bytes
        yield header, view[position:end]
        position = end


def crc_of(batch: Buffer) -> int:
    """Computes the CRC-32C of a whole batch; nothing may follow the batch in the buffer."""
    return crc32c(memoryview(batch)[CHECKED_POSITION:])


def set_crc(batch: bytearray | memoryview) -> int:
    """Computes the CRC-32C of a whole batch, writes it into the header and returns it."""
    crc = crc_of(batch)
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return crc
