"""Reads records out of batches, for clients, coordinators and tools. A broker serves records without reading them.

`iter_records` and `read_records` read one v2 batch. `iter_entries` and `iter_any` read whole buffers, such as a Fetch
response or a segment file, in which batches of v0, v1 and v2 may follow each other.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from barnabas.errors import CorruptMessage
from barnabas.records.batch import BATCH_LENGTH_OVERHEAD, HEADER_SIZE, MAGIC, BatchHeader, Buffer, crc_of, read_header
from barnabas.records.compiled import record_walk
from barnabas.records.compression import DECOMPRESSED_MAX_BYTES, NONE, DamagedData, DecompressedTooLarge, decompress
from barnabas.records.legacy import SIZE_MIN, LegacyMessage, read_message, records_of
from barnabas.records.record import Headers, Record

__all__ = [
    "Headers",
    "Record",
    "iter_any",
    "iter_entries",
    "iter_records",
    "read_records",
    "records_of_entry",
    "records_section",
]

_MAGIC_POSITION: Final = 16
_LENGTH: Final = Struct(">i")


def iter_records(batch: Buffer, *, check_crc: bool = True, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Iterator[Record]:
    """Returns an iterator of the records of one v2 batch, with absolute offsets and timestamps; of control batches too.

    `batch` starts with the batch; bytes after it are ignored. Raises CorruptMessage, before the first record, if the
    batch is cut off, fails its checksum (unless `check_crc` is off), is damaged inside, or holds more than `max_bytes`
    uncompressed.
    """
    return iter(read_records(batch, check_crc=check_crc, max_bytes=max_bytes))


def read_records(batch: Buffer, *, check_crc: bool = True, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> list[Record]:
    """Returns a list of the records that `iter_records` iterates over, with the same errors."""
    header = read_header(batch)
    size = header.size_bytes
    if size > len(batch):
        raise CorruptMessage(f"{header_text(header)} has {size} bytes, {len(batch)} are there")
    view = memoryview(batch)[:size]
    if check_crc and crc_of(view) != header.crc:
        raise CorruptMessage(f"{header_text(header)} fails its checksum")
    if header.record_count < 0:
        raise CorruptMessage(f"{header_text(header)} has {header.record_count} records")
    try:
        data, position = records_section(header, view, max_bytes)
        return record_walk.read_records(
            data,
            position,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.is_log_append_time else None,
        )
    except (DamagedData, DecompressedTooLarge, ValueError) as error:
        raise CorruptMessage(f"{header_text(header)}: {error}") from None
    except IndexError:
        raise CorruptMessage(f"{header_text(header)}: the records end early") from None


def iter_entries(buffer: Buffer) -> Iterator[tuple[int, BatchHeader | LegacyMessage, memoryview]]:
    """Yields position, header and bytes of each whole batch or message of any magic.

    A torn one at the end is left out. Checksums are not checked. Raises CorruptMessage at bytes that are neither a
    batch nor a message.
    """
    view, position = memoryview(buffer), 0
    while len(view) - position > _MAGIC_POSITION:
        (length,) = _LENGTH.unpack_from(view, position + 8)
        if length < SIZE_MIN:
            raise CorruptMessage(f"batch at byte {position} has length {length}")
        end = position + BATCH_LENGTH_OVERHEAD + length
        if end > len(view):
            return
        whole = view[position:end]
        magic = whole[_MAGIC_POSITION]
        yield position, read_message(whole) if magic < MAGIC else read_header(whole), whole
        position = end


def records_of_entry(
    entry: BatchHeader | LegacyMessage,
    whole: Buffer,
    *,
    check_crc: bool = True,
    max_bytes: int = DECOMPRESSED_MAX_BYTES,
) -> list[Record]:
    """Returns the records of a batch or message that `iter_entries` found. Raises CorruptMessage."""
    if isinstance(entry, LegacyMessage):
        return records_of(entry, max_bytes)
    return read_records(whole, check_crc=check_crc, max_bytes=max_bytes)


def iter_any(buffer: Buffer, *, check_crc: bool = True, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Iterator[Record]:
    """Yields the records of all batches and messages in `buffer`, except control batches. Raises CorruptMessage."""
    for _, entry, whole in iter_entries(buffer):
        if isinstance(entry, BatchHeader) and entry.is_control:
            continue
        yield from records_of_entry(entry, whole, check_crc=check_crc, max_bytes=max_bytes)


def records_section(header: BatchHeader, batch: Buffer, max_bytes: int) -> tuple[bytes, int]:
    """Returns bytes that end with the uncompressed records, and the position of the first record in them.

    Raises DamagedData or DecompressedTooLarge.
    """
    codec = header.compression_type
    if codec == NONE:
        return bytes(batch), HEADER_SIZE
    return decompress(codec, memoryview(batch)[HEADER_SIZE:], max_bytes), 0


def header_text(header: BatchHeader) -> str:
    """Returns the name of a batch for error messages."""
    return f"batch of offsets {header.base_offset} to {header.last_offset}"
