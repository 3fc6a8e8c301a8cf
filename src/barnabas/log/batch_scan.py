"""Walks the batches of an open segment file: headers only, or with their checksums.

Large batches are stepped over with one small read each; runs of small ones are read in blocks.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.errors import CorruptMessage
from barnabas.log.directories.disk import Disk
from barnabas.records.batch import CHECKED_POSITION, HEADER_SIZE, BatchHeader, read_header
from barnabas.records.checksum import crc32c

__all__ = ["scan_headers", "scan_verified", "why_not_a_batch"]

_BLOCK: Final = 64 * 1024
_SMALL_BATCH: Final = 4096
_VERIFY_BLOCK: Final = 1024 * 1024


def scan_headers(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each whole batch in [position, end). Stops before a torn or invalid one."""
    return _scan(disk, fd, position, end, verify=False)


def scan_verified(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Does the same as `scan_headers`, and also stops before a batch with a wrong checksum."""
    return _scan(disk, fd, position, end, verify=True)


def _scan(disk: Disk, fd: int, position: int, end: int, *, verify: bool) -> Iterator[tuple[int, BatchHeader]]:
    block, block_start, read_size = memoryview(b""), position, _VERIFY_BLOCK if verify else _BLOCK
    while end - position >= HEADER_SIZE:
        at = position - block_start
        if at + HEADER_SIZE > len(block):
            block = memoryview(disk.pread(fd, min(read_size, end - position), position))
            block_start, at = position, 0
        try:
            header = read_header(block, at)
        except CorruptMessage:
            return
        size = header.size_bytes
        if position + size > end:
            return
        if not verify:
            read_size = _BLOCK if size < _SMALL_BATCH else HEADER_SIZE
        elif at + size > len(block):
            block = memoryview(disk.pread(fd, min(max(size, _VERIFY_BLOCK), end - position), position))
            block_start, at = position, 0
            if size > len(block):
                return
        if verify and crc32c(block[at + CHECKED_POSITION : at + size]) != header.crc:
            return
        yield position, header
        position += size


def why_not_a_batch(disk: Disk, fd: int, position: int, end: int) -> str:
    """Returns a text that says why the bytes at `position`, where `scan_verified` stopped, are no valid batch."""
    if end - position < HEADER_SIZE:
        return f"the {end - position} bytes there are shorter than a batch's header"
    try:
        header = read_header(disk.pread(fd, HEADER_SIZE, position))
    except CorruptMessage as error:
        return f"no batch begins there ({error.message})"
    size = header.size_bytes
    if position + size > end:
        return f"the batch there claims {size} bytes, the file has {end - position}"
    if crc32c(disk.pread(fd, size - CHECKED_POSITION, position + CHECKED_POSITION)) != header.crc:
        return "the CRC of the batch there does not fit its contents"
    return f"the batch there has offset {header.base_offset}, which cannot follow"
