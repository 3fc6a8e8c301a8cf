"""Finds the aborted and the open transactions of a partition in its log directory, for read_committed."""

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
from barnabas.spark.segments.segment_files import OFFSETS_END, SegmentFile

__all__ = ["PartitionTransactions", "read_transactions"]


class PartitionTransactions(NamedTuple):
    """The transactions of a partition that read_committed depends on."""

    last_stable_offset: int
    """The first offset of the first open transaction; `OFFSETS_END` if there is none."""
    aborted: tuple[AbortedTransaction, ...]
    """The aborted transactions, sorted by their last offset."""

    def aborted_between(self, start: int, end: int) -> tuple[AbortedTransaction, ...]:
        return tuple(each for each in self.aborted if each.last_offset >= start and each.first_offset < end)


def read_transactions(files: Sequence[SegmentFile]) -> PartitionTransactions:
    """Reads the transactions of a partition. Raises UsageError if a transaction index is damaged."""
    directory = os.path.dirname(files[0].path)
    aborted: dict[int, AbortedTransaction] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*.txnindex"))):
        try:
            with open(path, "rb") as file:
                entries = parse_entries(path, file.read(), torn_end=True)
        except KafkaStorageError as error:
            raise UsageError(
                f"{error}: which transactions were aborted is not known. Read with isolationLevel=read_uncommitted, or"
                " start a broker on a copy of the directory, which rebuilds the index"
            ) from None
        aborted |= {entry.last_offset: entry for entry in entries}
    return PartitionTransactions(
        _last_stable_offset(directory, files), tuple(aborted[offset] for offset in sorted(aborted))
    )


def _last_stable_offset(directory: str, files: Sequence[SegmentFile]) -> int:
    """Reads the newest producer snapshot, and the headers of the batches after it."""
    first_offsets, start = _read_snapshot(directory)
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
                    first_offsets.pop(header.producer_id, None)
                else:
                    first_offsets.setdefault(header.producer_id, header.base_offset)
        finally:
            os.close(fd)
    return min(first_offsets.values(), default=OFFSETS_END)


def _read_snapshot(directory: str) -> tuple[dict[int, int], int]:
    """Returns the first offsets of open transactions by producer id, and the offset of the snapshot."""
    for offset in reversed(snapshot_offsets(directory)):
        try:
            entries: Iterable[tuple[int, int]] = [
                (entry.producer_id, entry.current_txn_first_offset)
                for entry in read_snapshot(os.path.join(directory, file_name(offset, SNAPSHOT_SUFFIX)))
            ]
        except (CorruptSnapshot, OSError):
            continue  # an older snapshot will do: more headers are read then
        return {producer: first for producer, first in entries if first >= 0}, offset
    return {}, 0
