"""Finds the offsets that may be committed while records of a partition are processed concurrently and out of order.

All records before a committed offset are done, so the offset is that of the first record that is not done. Records that
are done behind such a gap are noted in the commit's metadata, so that they are not processed again after a restart.
"""

import base64
import binascii
from collections import deque
from collections.abc import Iterable
from typing import Final

from barnabas.types import TopicPartition

__all__ = ["ProcessedOffsets", "decode_done", "encode_done"]

_MARK: Final = "done:"
METADATA_MAX_BYTES: Final = 4096
"""The brokers' default of offset.metadata.max.bytes."""
_SKIP_MAX: Final = 1_000_000
"""The most offsets that a commit's metadata may declare as done: foreign metadata could declare any number."""


class ProcessedOffsets:
    """Tracks the records of all partitions. At most `limit` records may be in progress, or done behind a gap."""

    def __init__(self, limit: int = 10_000) -> None:
        assert limit > 0, limit
        self._limit = limit
        self._partitions: dict[TopicPartition, _Partition] = {}
        self.size = 0
        """The number of records that are begun and not done, or done behind a gap."""

    @property
    def is_full(self) -> bool:
        """Whether no record may begin before one is done."""
        return self.size >= self._limit

    def begin(
        self, topic_partition: TopicPartition, offset: int, leader_epoch: int = -1, epoch_before: int = -1
    ) -> None:
        """Notes that a record begins. Records begin in the order of their offsets, some of which may be missing. The
        record before the first of a partition has the epoch `epoch_before`."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = self._partitions[topic_partition] = _Partition(offset, epoch_before)
        assert offset >= partition.next_offset, f"{topic_partition}: offset {offset} after {partition.next_offset - 1}"
        assert not self.is_full, f"{self.size} records are in progress, more than {self._limit} must not be"
        partition.order.append((offset, leader_epoch))
        partition.next_offset = offset + 1
        self.size += 1

    def done(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Notes that a record is done. Returns whether there is a new offset to commit. Ignores records of a former
        assignment."""
        partition = self._partitions.get(topic_partition)
        if partition is None or not partition.order or not partition.order[0][0] <= offset < partition.next_offset:
            return False
        if offset != partition.order[0][0]:
            partition.done.add(offset)
            return False
        partition.leader_epoch = partition.order.popleft()[1]
        self.size -= 1
        while partition.order and partition.order[0][0] in partition.done:
            at, partition.leader_epoch = partition.order.popleft()
            partition.done.remove(at)
            self.size -= 1
        if not partition.order:
            partition.done.clear()
        return True

    def skip_to(self, topic_partition: TopicPartition, offset: int) -> None:
        """Notes that there are no records up to `offset`: they were compacted away, or are not for consumers."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            self._partitions[topic_partition] = _Partition(offset)
        else:
            partition.next_offset = max(partition.next_offset, offset)

    def committable(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """Returns the offset that may be committed, and the epoch before it; None before the first record."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return None
        return (partition.order[0][0] if partition.order else partition.next_offset), partition.leader_epoch

    def metadata(self, topic_partition: TopicPartition, max_bytes: int = METADATA_MAX_BYTES) -> str:
        """Returns the commit's metadata: the records that are done beyond `committable`, as many as fit."""
        partition = self._partitions.get(topic_partition)
        if partition is None or not partition.done:
            return ""
        return encode_done(partition.order[0][0], partition.runs(), max_bytes)

    def is_idle(self, topic_partition: TopicPartition) -> bool:
        """Whether all begun records are done."""
        partition = self._partitions.get(topic_partition)
        return partition is None or not partition.order

    def unfinished(self, topic_partition: TopicPartition) -> list[int]:
        """Returns the offsets that are begun and not done."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            return []
        return [offset for offset, _ in partition.order if offset not in partition.done]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions; records of theirs that are done later are ignored."""
        for topic_partition in partitions:
            partition = self._partitions.pop(topic_partition, None)
            if partition is not None:
                self.size -= len(partition.order)


class _Partition:
    __slots__ = ("done", "leader_epoch", "next_offset", "order")

    def __init__(self, first_offset: int, leader_epoch: int = -1) -> None:
        self.order: deque[tuple[int, int]] = deque()
        """The offset and epoch of each record from the first one that is not done."""
        self.done: set[int] = set()
        """The offsets in `order` whose records are done."""
        self.next_offset = first_offset
        self.leader_epoch = leader_epoch
        """The epoch of the last record before the first that is not done."""

    def runs(self) -> list[tuple[int, int]]:
        """Returns the first and the last offset of each run of done records behind the first gap."""
        found: list[tuple[int, int]] = []
        going = False
        for offset, _ in self.order:
            if offset not in self.done:
                going = False
            elif going:
                found[-1] = found[-1][0], offset
            else:
                found.append((offset, offset))
                going = True
        return found


def encode_done(base: int, runs: Iterable[tuple[int, int]], max_bytes: int = METADATA_MAX_BYTES) -> str:
    """Encodes runs of offsets as text: the distance of each from the one before or from `base`, and its length. Records
    of runs that do not fit are done again."""
    room = (max_bytes - len(_MARK)) // 4 * 3
    out = bytearray()
    at = base
    for first, last in runs:
        piece = _number(first - at) + _number(last - first)
        if len(out) + len(piece) > room:
            break
        out += piece
        at = last
    return _MARK + base64.b64encode(out).decode() if out else ""


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_done(base: int, metadata: str) -> set[int]:
    """Returns the offsets that the metadata of a commit at `base` declares as done; none for foreign metadata."""
    if not metadata.startswith(_MARK):
        return set()
    try:
        data = base64.b64decode(metadata.removeprefix(_MARK), validate=True)
    except (binascii.Error, ValueError):
        return set()
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
        elif shift > 63:
            return set()
    if shift or len(numbers) % 2:
        return set()
    found: set[int] = set()
    at = base
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = at + gap
        at = first + length
        if len(found) + length + 1 > _SKIP_MAX:
            return set()
        found.update(range(first, at + 1))
    return found
