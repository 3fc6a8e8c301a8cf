"""Walks the batches of an open segment file: headers only, or with their checksums.

Large batches are stepped over with one small read each; runs of small ones are read in blocks.
"""

import errno
import os
import re
from collections.abc import Iterator
from struct import Struct
from typing import Final

from barnabas.errors import CorruptMessage
from barnabas.log.directories.disk import Disk
from barnabas.records.batch import CHECKED_POSITION, HEADER_SIZE, BatchHeader, read_header
from barnabas.records.checksum import crc32c
from barnabas.types import Offset

__all__ = ["find_batch", "is_batch_at", "scan_headers", "scan_verified", "why_not_a_batch"]

_BLOCK: Final = 64 * 1024
_SMALL_BATCH: Final = 4096
_VERIFY_BLOCK: Final = 1024 * 1024
_OFFSET: Final = Struct(">q")
_MAGIC_POSITION: Final = 16
_SEEK_DATA: Final[int] = getattr(os, "SEEK_DATA", os.SEEK_SET)  # not every system has it


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


def find_batch(disk: Disk, fd: int, position: int, end: int, first: Offset, last: Offset) -> int | None:
    """Returns the position of the first valid batch behind the damaged one at `position`, None if there is none: one
    whose offsets are within [first, last]. Behind a write that was torn there is none."""
    try:  # the records of the damaged batch may look like batches
        behind = position + read_header(disk.pread(fd, HEADER_SIZE, position)).size_bytes
        if is_batch_at(disk, fd, behind, end, first, last):
            return behind
    except CorruptMessage:
        pass
    same = _OFFSET.size - ((first ^ last).bit_length() + 7) // 8  # the leading bytes that all these offsets have
    begin = re.escape(_OFFSET.pack(first)[:same])
    headers = re.compile(b"%b.{%d}\2" % (begin, _MAGIC_POSITION - same), re.DOTALL)
    position += 1
    while end - position >= HEADER_SIZE:
        position = max(position, _next_data(fd, position, end) - HEADER_SIZE)
        block = disk.pread(fd, min(_VERIFY_BLOCK, end - position), position)
        if len(block) < HEADER_SIZE:
            return None
        found = headers.search(block) if block.strip(b"\0") else None
        while found is not None:
            if is_batch_at(disk, fd, position + found.start(), end, first, last):
                return position + found.start()
            found = headers.search(block, found.start() + 1)
        position += len(block) - HEADER_SIZE + 1
    return None


def is_batch_at(disk: Disk, fd: int, position: int, end: int, first: Offset, last: Offset) -> bool:
    """Returns whether a valid batch with offsets within [first, last] stands at `position`, before `end`."""
    try:
        header = read_header(disk.pread(fd, HEADER_SIZE, position))
    except CorruptMessage:
        return False
    size = header.size_bytes
    if position + size > end or not first <= header.base_offset <= header.last_offset <= last:
        return False
    return crc32c(disk.pread(fd, size - CHECKED_POSITION, position + CHECKED_POSITION)) == header.crc


def _next_data(fd: int, position: int, end: int) -> int:
    """Returns where a file goes on that has a hole at `position`, as the rest of one that was preallocated."""
    try:
        return os.lseek(fd, position, _SEEK_DATA)
    except OSError as error:  # some file systems do not know
        return end if error.errno == errno.ENXIO else position
