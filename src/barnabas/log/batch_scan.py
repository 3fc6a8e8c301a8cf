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

__all__ = [
    "end_of_data",
    "find_batch",
    "header_at",
    "is_batch_at",
    "offset_behind",
    "scan_headers",
    "scan_verified",
    "why_not_a_batch",
]

_BLOCK: Final = 64 * 1024
_SMALL_BATCH: Final = 4096
_VERIFY_BLOCK: Final = 1024 * 1024
_CHECKED_TIMES: Final = 4
"""The bytes that may be checked for each one that is searched for a batch: rubbish may look like many large ones."""
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
    if not _has_its_crc(disk, fd, position, header):
        return "the CRC of the batch there does not fit its contents"
    return f"the batch there has offset {header.base_offset}, which cannot follow"


def find_batch(disk: Disk, fd: int, position: int, end: int, first: Offset, last: Offset) -> int | None:
    """Returns the position of the first valid batch behind the damaged one at `position`: one whose offsets are within
    [first, last], and that is no part of the damaged one. None if there is none, as behind a write that was torn.

    Returns `end` if that takes too long to find out, and nothing is known of what is there.
    """
    damaged = _DamagedBatch(disk, fd, position, end, last)
    if damaged.claimed_end > position and is_batch_at(disk, fd, damaged.claimed_end, end, first, last):
        return damaged.claimed_end
    for at, header in _likely_headers(disk, fd, position + 1, end, first, last):
        if not damaged.contains(at, header) and damaged.is_whole(at, header):
            return at
        if damaged.bytes_left < 0:
            return end
    return None


def offset_behind(disk: Disk, fd: int, position: int, end: int, first: Offset, last: Offset) -> Offset:
    """Returns the lowest offset that is behind all batches that may be in [position, end)."""
    offset = first
    for _, header in _likely_headers(disk, fd, position, end, first, last):
        offset = max(offset, header.next_offset)
    return offset


def is_batch_at(disk: Disk, fd: int, position: int, end: int, first: Offset, last: Offset) -> bool:
    """Returns whether a valid batch with offsets within [first, last] stands at `position`, before `end`."""
    header = _likely_header(disk.pread(fd, HEADER_SIZE, position), 0, end - position, first, last)
    return header is not None and _has_its_crc(disk, fd, position, header)


def header_at(disk: Disk, fd: int, position: int) -> BatchHeader | None:
    """Returns the header of a batch that stands at `position`, whole or not; None if there is none."""
    try:
        return read_header(disk.pread(fd, HEADER_SIZE, position))
    except CorruptMessage:
        return None


def end_of_data(disk: Disk, fd: int, position: int, end: int) -> int:
    """Returns the position from which on there are only zeros up to `end`."""
    found = position
    while (position := _next_data(fd, position, end)) < end:
        block = disk.pread(fd, min(_VERIFY_BLOCK, end - position), position)
        if not block:
            break
        if data := block.rstrip(b"\0"):
            found = position + len(data)
        position += len(block)
    return found


class _DamagedBatch:
    """A batch that is none any more. Its records may look like batches: a record's value may be a batch of any log.

    Its header says where it ends, unless the header is what is damaged. So a batch within is one of the log only if the
    header is refuted: the checksum fits if the damaged batch ends where the other one begins, or the headers from there
    on lead from one to the next past the end that is claimed, or to the end of the file. A write that was torn claims
    more than the file has, and the batches in its records lead nowhere.
    """

    __slots__ = (
        "_checked_to",
        "_crc",
        "_crc_so_far",
        "_data_end",
        "_disk",
        "_end",
        "_fd",
        "_last",
        "_leads_nowhere",
        "_position",
        "bytes_left",
        "claimed_end",
    )

    def __init__(self, disk: Disk, fd: int, position: int, end: int, last: Offset) -> None:
        self._disk = disk
        self._fd = fd
        self._position = position
        self._end = end
        self._last = last
        self._leads_nowhere: set[int] = set()
        """The positions of headers that do not lead out."""
        self._data_end = -1
        self.bytes_left = _CHECKED_TIMES * (end - position) + _VERIFY_BLOCK
        """The number of bytes that may still be checked."""
        self._checked_to = position + CHECKED_POSITION
        self._crc_so_far = 0
        header = header_at(disk, fd, position)
        self._crc = 0 if header is None else header.crc
        self.claimed_end = position + (0 if header is None else header.size_bytes)
        """`position` if there is no header."""

    def contains(self, position: int, header: BatchHeader) -> bool:
        """Returns whether a batch with this header would be a part of the damaged one. Asked for growing positions."""
        return position < self.claimed_end and not self._may_end_at(position) and not self._follow(position, header)

    def is_whole(self, position: int, header: BatchHeader) -> bool:
        """Returns whether a batch with this header is valid; False as well if no more bytes are checked."""
        self.bytes_left -= header.size_bytes
        return self.bytes_left >= 0 and _has_its_crc(self._disk, self._fd, position, header)

    def _may_end_at(self, position: int) -> bool:
        """Returns whether the checksum fits if the damaged batch ends here: then its length alone is damaged."""
        while self._checked_to < position:
            block = self._disk.pread(self._fd, min(_VERIFY_BLOCK, position - self._checked_to), self._checked_to)
            if not block:
                return False
            self._crc_so_far = crc32c(block, self._crc_so_far)
            self._checked_to += len(block)
        return self._checked_to == position and self._crc_so_far == self._crc

    def _follow(self, position: int, header: BatchHeader) -> bool:
        """Follows the headers from this one on, and returns whether they lead out of the damaged batch."""
        passed = []
        leads_out = False
        while position not in self._leads_nowhere:
            passed.append(position)
            self.bytes_left -= HEADER_SIZE
            behind = position + header.size_bytes
            if behind == self.claimed_end:
                break
            head = self._disk.pread(self._fd, HEADER_SIZE, behind)
            following = _likely_header(head, 0, self._end - behind, header.next_offset, self._last)
            if following is None:
                # a preallocated file ends with zeros, and what was torn has some, too
                is_last = len(head) in (0, HEADER_SIZE) and not head.strip(b"\0") and self._ends_before(behind)
                leads_out = is_last and (not head or self.is_whole(position, header))
                break
            if behind > self.claimed_end:
                leads_out = True
                break
            position, header = behind, following
        if not leads_out:
            self._leads_nowhere.update(passed)
        return leads_out

    def _ends_before(self, position: int) -> bool:
        """Returns whether nothing but zeros is in the file from `position` on."""
        if self._data_end < 0:
            self._data_end = end_of_data(self._disk, self._fd, self._position, self._end)
        return self._data_end <= position


def _likely_headers(
    disk: Disk, fd: int, position: int, end: int, first: Offset, last: Offset
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each place in [position, end) where a batch with offsets within [first, last] may
    begin. Its checksum is not computed."""
    same = _OFFSET.size - ((first ^ last).bit_length() + 7) // 8  # the leading bytes that all these offsets have
    begin = re.escape(_OFFSET.pack(first)[:same])
    headers = re.compile(b"%b.{%d}\2" % (begin, _MAGIC_POSITION - same), re.DOTALL)
    while end - position >= HEADER_SIZE:
        position = max(position, _next_data(fd, position, end) - HEADER_SIZE)
        block = disk.pread(fd, min(_VERIFY_BLOCK, end - position), position)
        if len(block) < HEADER_SIZE:
            return
        found = headers.search(block) if block.strip(b"\0") else None
        while found is not None:
            at = found.start()
            header = _likely_header(block, at, end - position - at, first, last)
            if header is not None:
                yield position + at, header
            found = headers.search(block, at + 1)
        position += len(block) - HEADER_SIZE + 1


def _likely_header(buffer: bytes, at: int, room: int, first: Offset, last: Offset) -> BatchHeader | None:
    """Returns the header of a batch that may be one of the log: with offsets within [first, last], and no larger than
    `room`. None if there is none."""
    try:
        header = read_header(buffer, at)
    except CorruptMessage:
        return None
    fits = header.size_bytes <= room and first <= header.base_offset <= header.last_offset <= last
    return header if fits and 0 <= header.record_count <= header.last_offset_delta + 1 else None


def _has_its_crc(disk: Disk, fd: int, position: int, header: BatchHeader) -> bool:
    return crc32c(disk.pread(fd, header.size_bytes - CHECKED_POSITION, position + CHECKED_POSITION)) == header.crc


def _next_data(fd: int, position: int, end: int) -> int:
    """Returns where a file goes on that has a hole at `position`, as the rest of one that was preallocated."""
    try:
        return os.lseek(fd, position, _SEEK_DATA)
    except OSError as error:  # some file systems do not know
        return end if error.errno == errno.ENXIO else position
