"""Plans which offsets a batch has and how tasks share them. All are functions of numbers, so that a replay plans the
same."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Final, NamedTuple

from barnabas.spark.source.offsets import Plan
from barnabas.types import TopicPartition

__all__ = ["TOGETHER_MAX", "OffsetRange", "bounded", "bounded_by_bytes", "combined", "shares", "split"]

TOGETHER_MAX: Final = 500
"""Offsets of several ranges that one task reads: so few cost less than a task of their own."""


class OffsetRange(NamedTuple):
    """Offsets of one partition, the last one not included."""

    partition: TopicPartition
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition}, offsets {self.start} to {self.end - 1}"

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


# --- how much ---------------------------------------------------------------------------------------------------------


def bounded(
    limit: int, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns ends for about `limit` offsets, in proportion to what each partition has; each that has some gets
    some."""
    return _bounded(limit, start, ends, {})


def bounded_by_bytes(
    limit: int,
    start: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Returns ends for about `limit` bytes, given the mean size of each partition's records."""
    return _bounded(limit, start, ends, record_bytes)


def _bounded(
    limit: int,
    start: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    weights = {partition: max(record_bytes.get(partition, 1.0), 1e-3) for partition in ends}
    sizes = {partition: (end - start.get(partition, end)) * weights[partition] for partition, end in ends.items()}
    total = sum(size for size in sizes.values() if size > 0)
    found = dict(ends)
    if total <= limit:
        return found
    for partition, size in sizes.items():
        if size > 0:
            share = limit * (size / total) / weights[partition]
            found[partition] = min(ends[partition], start[partition] + (ceil(share) if share < 1 else floor(share)))
    return found


# --- by whom ----------------------------------------------------------------------------------------------------------


def split(
    ranges: Sequence[OffsetRange], plan: Plan, record_bytes: Mapping[TopicPartition, float] | None = None
) -> list[OffsetRange]:
    """Cuts ranges into at least `min_partitions` pieces, none above `max_records`. Empty ranges are left out."""
    found = [each for each in ranges if each.size]
    if plan.max_records:
        found = [piece for each in found for piece in _cut(each, ceil(each.size / plan.max_records))]
    if not found or plan.min_partitions <= len(found):
        return found
    weights = record_bytes or {}
    sizes = [each.size * weights.get(each.partition, 1.0) for each in found]
    return [
        piece
        for each, count in zip(found, shares(sizes, [each.size for each in found], plan.min_partitions))
        for piece in _cut(each, count)
    ]


def shares(sizes: Sequence[float], most: Sequence[int], wanted: int) -> list[int]:
    """Returns the number of pieces of each range: at least one, more for large ones, `wanted` in all if there are so
    many records."""
    counts = [1] * len(sizes)
    total = sum(sizes)
    if total > 0:
        counts = [min(max(1, floor(size / total * wanted)), limit) for size, limit in zip(sizes, most)]
    left = min(wanted, sum(most)) - sum(counts)
    while left > 0:  # less than one for each, unless some are too small to be cut
        index = max((i for i in range(len(counts)) if counts[i] < most[i]), key=lambda i: (sizes[i] / counts[i], -i))
        counts[index] += 1
        left -= 1
    return counts


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Returns about equal pieces."""
    count = min(count, whole.size)
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.partition, start, end) for start, end in pairwise(edges)]


def combined(pieces: Sequence[OffsetRange], plan: Plan) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task. Neighbours that have `TOGETHER_MAX` offsets at most (`max_records`, if that is
    less) share a task, unless that leaves less than `min_partitions` tasks."""
    most = min(TOGETHER_MAX, plan.max_records or TOGETHER_MAX)
    tasks: list[list[OffsetRange]] = []
    room = 0
    for piece in pieces:
        if piece.size > room:
            tasks.append([])
            room = most
        tasks[-1].append(piece)
        room -= piece.size
    if len(tasks) < plan.min_partitions:
        return [(piece,) for piece in pieces]
    return [tuple(task) for task in tasks]
