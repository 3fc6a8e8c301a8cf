"""Splits segment files into ranges of about the same number of bytes, at offsets that their indexes have."""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.offset_index import OffsetIndex
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.indexes.transaction_index import AbortedTransaction
from barnabas.spark.segments.segment_files import SegmentFile
from barnabas.spark.source.planning import shares
from barnabas.types import Offset

__all__ = ["FileRange", "offset_index", "split"]


class FileRange(NamedTuple):
    """A range of offsets of a segment file."""

    file: SegmentFile
    start: int
    end: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    """The aborted transactions in the range; None with read_uncommitted."""


@contextlib.contextmanager
def offset_index(file: SegmentFile) -> Iterator[OffsetIndex]:
    """Opens the offset index of a segment file. Yields an empty index if the index file is missing or damaged."""
    path = file.path.removesuffix(".log") + ".index"
    index = OffsetIndex(path, Offset(file.base_offset), Disk(), ResourcePool(1))
    try:
        try:
            index.load()
            index.sanity_check(file.size)
            if len(index):
                index.entry_at(0)  # maps the file
        except (CorruptIndex, OSError):  # for example, the newest index of a running Kafka ends with zeros
            index.forget()
        yield index
    finally:
        index.release()


def split(ranges: Sequence[FileRange], min_partitions: int) -> list[FileRange]:
    """Splits the ranges, the largest in bytes first, until there are `min_partitions`, or as many as the indexes have
    entries for."""
    if min_partitions <= len(ranges):
        return list(ranges)
    edges = [_edges(each) for each in ranges]
    counts = shares([_size_bytes(each) for each in edges], [len(each) - 1 for each in edges], min_partitions)
    return [
        whole._replace(start=start, end=end)
        for whole, each, count in zip(ranges, edges, counts)
        for start, end in pairwise(_split_offsets(each, count))
    ]


Edge = tuple[int, int]
"""An offset, and the position in the file from which it is read."""


def _edges(whole: FileRange) -> list[Edge]:
    """Returns the edges at which the range can be split, its start and end included."""
    file = whole.file
    with offset_index(file) as index:
        entries = [index.entry_at(slot) for slot in range(len(index))]
    edges = [(file.base_offset + relative + 1, position) for relative, position in entries]
    inside = [edge for edge in edges if whole.start < edge[0] < whole.end]
    first = max((position for offset, position in edges if offset <= whole.start), default=0)
    last = min((position for offset, position in edges if offset >= whole.end), default=file.size)
    return [(whole.start, first), *inside, (whole.end, last)]


def _size_bytes(edges: Sequence[Edge]) -> int:
    return edges[-1][1] - edges[0][1]


def _split_offsets(edges: Sequence[Edge], count: int) -> list[int]:
    """Returns the offsets between which `count` ranges lie: the first edges at or above equal shares of the bytes."""
    size, begin = _size_bytes(edges), edges[0][1]
    offsets = [edges[0][0]]
    for number in range(1, count):
        target = begin + size * number // count
        reserved = count - number  # edges that the following ranges need
        candidates = [i for i in range(1, len(edges) - reserved) if edges[i][0] > offsets[-1]]
        offsets.append(edges[next((i for i in candidates if edges[i][1] >= target), candidates[-1])][0])
    return [*offsets, edges[-1][0]]
