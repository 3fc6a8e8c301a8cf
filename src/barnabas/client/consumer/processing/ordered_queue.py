"""Records on their way through a pool of workers: those of one key one after the other, all others side by side.

A lane is a key of a partition (or the whole partition, or one record alone) and has at most one record in work. There
is no queue for each worker, so a slow key delays nobody but itself.
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
    """A record for a worker; hand it back with `done`."""

    partition: TopicPartition
    ordering_key: Hashable
    record: Any


_limit = number(1, INT64_MAX)


class OrderedQueue:
    """See the module. Not safe for several threads by itself."""

    def __init__(self, ordered_by: str = "key", limit: int = 1000) -> None:
        """At most `limit` records wait or are in work; the reader stops at `is_full`."""
        if ordered_by not in ORDERS:
            raise UsageError(f"ordered_by={ordered_by!r} is not known: give one of {', '.join(ORDERS)}")
        self._ordered_by = ordered_by
        self._limit = _limit("limit", limit)
        self._waiting: dict[Hashable, deque[QueuedRecord]] = {}
        """What waits behind the record that is in work or ready; a lane that is here has one of these."""
        self._ready: deque[QueuedRecord] = deque()
        self._counts: dict[TopicPartition, int] = {}
        """Records of each partition that are not done."""
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size >= self._limit

    def add(self, partition: TopicPartition, record: Any) -> None:
        """Records of one partition in the order of their offsets."""
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
            return partition, record.offset  # nothing says what it would have to wait for
        if type(key) is bytes or type(key) is str:
            return partition, key
        try:
            hash(key)
        except TypeError:
            return partition, repr(key)
        return partition, key

    def take(self) -> QueuedRecord | None:
        """The next record to work on, None if all are in work or wait for their turn."""
        return self._ready.popleft() if self._ready else None

    def done(self, task: QueuedRecord) -> None:
        """The record's work has ended; the next one of its lane is ready."""
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
        """How many records of these are not done."""
        return sum(self._counts.get(partition, 0) for partition in partitions)

    def drop_waiting(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is not in work yet of these; nobody will commit it."""
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
