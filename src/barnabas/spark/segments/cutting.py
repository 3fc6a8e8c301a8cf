"""Cuts segment files into pieces of about the same number of bytes, at offsets that their indexes know."""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.indexes.offset_index import OffsetIndex
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.spark.segments.finding import SegmentFile
from barnabas.spark.source.planning import OffsetRange, shares
from barnabas.types import Offset

__all__ = ["FileRange", "cut", "offset_index"]

FileRange = tuple[SegmentFile, OffsetRange]
"""A file, and which of its offsets are wanted."""


@contextlib.contextmanager
def offset_index(file: SegmentFile) -> Iterator[OffsetIndex]:
    """Opens the offset index of a segment file; an empty one where the file beside the segment is of no use."""
    path = file.path.removesuffix(".log") + ".index"
    index = OffsetIndex(path, Offset(file.base_offset), Disk(), ResourcePool(1))
    try:
        try:
            index.load()
            index.sanity_check(file.size)
            if len(index):
                index.entry_at(0)  # maps the file
        except (CorruptIndex, OSError):  # a running Kafka's newest index has zeros at its end, for one
            index.forget()
        yield index
    finally:
        index.release()


def cut(ranges: Sequence[FileRange], min_partitions: int) -> list[FileRange]:
    """Returns at least `min_partitions` ranges where the indexes know so many places, the largest in bytes cut first;
    the ranges as they are where there are enough of them."""
    if min_partitions <= len(ranges):
        return list(ranges)
    edges = [_edges(file, wanted) for file, wanted in ranges]
    counts = shares([_bytes(each) for each in edges], [len(each) - 1 for each in edges], min_partitions)
    return [
        (file, OffsetRange(wanted.partition, start, end))
        for (file, wanted), each, count in zip(ranges, edges, counts)
        for start, end in pairwise(_chosen(each, count))
    ]


Edge = tuple[int, int]
"""An offset, and the position in the file from which it is read."""


def _edges(file: SegmentFile, wanted: OffsetRange) -> list[Edge]:
    """Returns the places where the range can be cut, its start and end included."""
    with offset_index(file) as index:
        entries = [index.entry_at(slot) for slot in range(len(index))]
    behind = [(file.base_offset + relative + 1, position) for relative, position in entries]
    inside = [edge for edge in behind if wanted.start < edge[0] < wanted.end]
    first = max((position for offset, position in behind if offset <= wanted.start), default=0)
    last = min((position for offset, position in behind if offset >= wanted.end), default=file.size)
    return [(wanted.start, first), *inside, (wanted.end, last)]


def _bytes(edges: Sequence[Edge]) -> int:
    return edges[-1][1] - edges[0][1]


def _chosen(edges: Sequence[Edge], count: int) -> list[int]:
    """Returns the offsets of `count` pieces: those whose positions are next above equal parts of the bytes."""
    size, begin = _bytes(edges), edges[0][1]
    offsets = [edges[0][0]]
    for number in range(1, count):
        target = begin + size * number // count
        left = count - number  # edges that the pieces behind this one need
        candidates = [i for i in range(1, len(edges) - left) if edges[i][0] > offsets[-1]]
        offsets.append(edges[next((i for i in candidates if edges[i][1] >= target), candidates[-1])][0])
    return [*offsets, edges[-1][0]]
