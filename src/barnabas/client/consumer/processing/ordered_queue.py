"""A queue of records for a pool of workers. Records of one ordering key are processed in order, others concurrently.

An ordering key is a key of a partition, the whole partition, or a record alone. There is no queue for each worker, so a
slow key delays only itself.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, Final, NamedTuple

from barnabas.client.arguments import INT64_MAX, number
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

__all__ = ["OrderedQueue", "QueuedRecord"]

ORDERS: Final = ("key", "partition", "none")


class QueuedRecord(NamedTuple):
    """A record for a worker, which calls `done` with it."""

    partition: TopicPartition
    ordering_key: Hashable
    record: Any


_limit = number(1, INT64_MAX)


class OrderedQueue:
    """A queue that only one thread at a time may use."""

    def __init__(self, ordered_by: str = "key", limit: int = 1000) -> None:
        """`limit` is the number of records, waiting or in progress, at which the queue is full."""
        if ordered_by not in ORDERS:
            raise UsageError(f"ordered_by={ordered_by!r} is not known: give one of {', '.join(ORDERS)}")
        self._ordered_by = ordered_by
        self._limit = _limit("limit", limit)
        self._waiting: dict[Hashable, deque[QueuedRecord]] = {}
        """The records that wait behind a record in progress or ready, for each ordering key that has one."""
        self._ready: deque[QueuedRecord] = deque()
        self._counts: dict[TopicPartition, int] = {}
        """The number of records of each partition that are not done."""
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size >= self._limit

    def add(self, partition: TopicPartition, record: Any) -> None:
        """Adds a record. Records of a partition are added in the order of their offsets."""
        task = QueuedRecord(partition, self._ordering_key(partition, record), record)
        self.size += 1
        self._counts[partition] = self._counts.get(partition, 0) + 1
        waiting = self._waiting.get(task.ordering_key)
        if waiting is None:
            self._waiting[task.ordering_key] = deque()
            self._ready.append(task)
        else:
            waiting.append(task)

    def _ordering_key(self, partition: TopicPartition, record: Any) -> Hashable:
        key = record.key
        if self._ordered_by == "partition":
            return partition
        if self._ordered_by == "none" or key is None:
            return partition, record.offset  # the record waits for no other one
        if type(key) is bytes or type(key) is str:
            return partition, key
        try:
            hash(key)
        except TypeError:
            return partition, repr(key)
        return partition, key

    def take(self) -> QueuedRecord | None:
        """Returns the next record to process, None if all are in progress or wait for one that is."""
        return self._ready.popleft() if self._ready else None

    def done(self, task: QueuedRecord) -> None:
        """Notes that a record is done, so that the next one of its ordering key is ready."""
        self.size -= 1
        left = self._counts[task.partition] - 1
        if left:
            self._counts[task.partition] = left
        else:
            del self._counts[task.partition]
        waiting = self._waiting[task.ordering_key]
        if waiting:
            self._ready.append(waiting.popleft())
        else:
            del self._waiting[task.ordering_key]

    def unfinished(self, partitions: Iterable[TopicPartition]) -> int:
        """Returns the number of records of these partitions that are not done."""
        return sum(self._counts.get(partition, 0) for partition in partitions)

    def drop_waiting(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the records of these partitions that are not in progress yet."""
        gone = set(partitions)
        kept = deque(task for task in self._ready if task.partition not in gone)
        for task in self._ready:
            if task.partition in gone:
                self._forget(task, len(self._waiting.pop(task.ordering_key)) + 1)
        self._ready = kept
        for waiting in self._waiting.values():
            if waiting and waiting[0].partition in gone:
                self._forget(waiting[0], len(waiting))
                waiting.clear()

    def _forget(self, task: QueuedRecord, count: int) -> None:
        self.size -= count
        left = self._counts[task.partition] - count
        if left:
            self._counts[task.partition] = left
        else:
            del self._counts[task.partition]
