"""What read_committed leaves out, as the files beside the segments tell it: aborted transactions, and open ones."""

import glob
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.errors import KafkaStorageError, UsageError
from barnabas.log.batch_scan import scan_headers
from barnabas.log.directories.disk import Disk
from barnabas.log.indexes.transaction_index import AbortedTransaction, parse_entries
from barnabas.log.log_segment import file_name
from barnabas.log.producers.producer_snapshot import SNAPSHOT_SUFFIX, CorruptSnapshot, read_snapshot, snapshot_offsets
from barnabas.spark.segments.finding import OFFSETS_END, SegmentFile

__all__ = ["Committed", "committed_part"]


class Committed(NamedTuple):
    """Of one partition."""

    end: int
    """The first offset of a transaction that is open: nothing from there on is decided."""
    aborted: tuple[AbortedTransaction, ...]
    """By the offset of their end."""

    def touching(self, start: int, end: int) -> tuple[AbortedTransaction, ...]:
        return tuple(each for each in self.aborted if each.last_offset >= start and each.first_offset < end)


def committed_part(files: Sequence[SegmentFile]) -> Committed:
    """Of a partition's files. Raises UsageError if an index is damaged."""
    directory = os.path.dirname(files[0].path)
    aborted: dict[int, AbortedTransaction] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*.txnindex"))):
        try:
            with open(path, "rb") as file:
                entries = parse_entries(path, file.read(), torn_end=True)
        except KafkaStorageError as error:
            raise UsageError(
                f"{error}: which transactions were aborted is not known. Read with isolationLevel=read_uncommitted, or"
                " start a broker on a copy of the directory, which makes the index anew"
            ) from None
        aborted |= {entry.last_offset: entry for entry in entries}
    return Committed(_first_open(directory, files), tuple(aborted[offset] for offset in sorted(aborted)))


def _first_open(directory: str, files: Sequence[SegmentFile]) -> int:
    """By the newest producers' snapshot and the headers behind it."""
    open_since, start = _snapshot(directory)
    disk = Disk()
    for file in files:
        if file.next_base_offset <= start:
            continue
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _, header in scan_headers(disk, fd, 0, file.size):
                if not header.is_transactional or header.last_offset < start:
                    continue
                if header.is_control:
                    open_since.pop(header.producer_id, None)
                else:
                    open_since.setdefault(header.producer_id, header.base_offset)
        finally:
            os.close(fd)
    return min(open_since.values(), default=OFFSETS_END)


def _snapshot(directory: str) -> tuple[dict[int, int], int]:
    """(first offset of each open transaction by producer, as of which offset)."""
    for offset in reversed(snapshot_offsets(directory)):
        try:
            entries: Iterable[tuple[int, int]] = [
                (entry.producer_id, entry.current_txn_first_offset)
                for entry in read_snapshot(os.path.join(directory, file_name(offset, SNAPSHOT_SUFFIX)))
            ]
        except (CorruptSnapshot, OSError):
            continue  # an older one means more to look through
        return {producer: first for producer, first in entries if first >= 0}, offset
    return {}, 0
