"""Reading records out of v2 batches: for clients, coordinators and tools. The broker's data path never does this."""

from collections.abc import Iterator

from barnabas.errors import CorruptMessage
from barnabas.records import kernel
from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer, crc_of, read_header
from barnabas.records.compression import DECOMPRESSED_MAX_BYTES, NONE, DamagedData, DecompressedTooLarge, decompress
from barnabas.records.record import Headers, Record

__all__ = ["Headers", "Record", "iter_records", "read_records"]


def iter_records(batch: Buffer, *, check_crc: bool = True, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Iterator[Record]:
    """The records of one v2 batch, with absolute offsets and timestamps; control batches included.

    `batch` starts with the batch; what follows it is ignored. Raises CorruptMessage, before the first record, if the
    batch is cut off, fails its checksum (unless `check_crc` is off), is damaged inside, or holds more than `max_bytes`
    uncompressed.
    """
    return iter(read_records(batch, check_crc=check_crc, max_bytes=max_bytes))


def read_records(batch: Buffer, *, check_crc: bool = True, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> list[Record]:
    """As `iter_records`, as a list."""
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
        return kernel.read_records(
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


def records_section(header: BatchHeader, batch: Buffer, max_bytes: int) -> tuple[bytes, int]:
    """Bytes that hold the uncompressed records up to their end, and where the first begins.

    Raises DamagedData or DecompressedTooLarge.
    """
    codec = header.compression_type
    if codec == NONE:
        return bytes(batch), HEADER_SIZE
    return decompress(codec, memoryview(batch)[HEADER_SIZE:], max_bytes), 0


def header_text(header: BatchHeader) -> str:
    """How messages name a batch."""
    return f"batch of offsets {header.base_offset} to {header.last_offset}"
