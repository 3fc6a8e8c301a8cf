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

__all__ = ["KeyedWork", "Task"]

ORDERS: Final = ("key", "partition", "none")


class Task(NamedTuple):
    """A record for a worker; hand it back with `done`."""

    where: TopicPartition
    lane: Hashable
    record: Any


_limit = number(1, INT64_MAX)


class KeyedWork:
    """See the module. Not safe for several threads by itself."""

    def __init__(self, ordered_by: str = "key", limit: int = 1000) -> None:
        """At most `limit` records wait or are in work; the reader stops at `is_full`."""
        if ordered_by not in ORDERS:
            raise UsageError(f"ordered_by={ordered_by!r} is not known: give one of {', '.join(ORDERS)}")
        self._ordered_by = ordered_by
        self._limit = _limit("limit", limit)
        self._lanes: dict[Hashable, deque[Task]] = {}
        """What waits behind the record that is in work or ready; a lane that is here has one of these."""
        self._ready: deque[Task] = deque()
        self._counts: dict[TopicPartition, int] = {}
        """Records of each partition that are not done."""
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size >= self._limit

    def add(self, where: TopicPartition, record: Any) -> None:
        """Records of one partition in the order of their offsets."""
        task = Task(where, self._lane(where, record), record)
        self.size += 1
        self._counts[where] = self._counts.get(where, 0) + 1
        waiting = self._lanes.get(task.lane)
        if waiting is None:
            self._lanes[task.lane] = deque()
            self._ready.append(task)
        else:
            waiting.append(task)

    def _lane(self, where: TopicPartition, record: Any) -> Hashable:
        key = record.key
        if self._ordered_by == "partition":
            return where
        if self._ordered_by == "none" or key is None:
            return where, record.offset  # nothing says what it would have to wait for
        if type(key) is bytes or type(key) is str:
            return where, key
        try:
            hash(key)
        except TypeError:
            return where, repr(key)
        return where, key

    def take(self) -> Task | None:
        """The next record to work on, None if all are in work or wait for their turn."""
        return self._ready.popleft() if self._ready else None

    def done(self, task: Task) -> None:
        """The record's work has ended; the next one of its lane is ready."""
        self.size -= 1
        left = self._counts[task.where] - 1
        if left:
            self._counts[task.where] = left
        else:
            del self._counts[task.where]
        waiting = self._lanes[task.lane]
        if waiting:
            self._ready.append(waiting.popleft())
        else:
            del self._lanes[task.lane]

    def unfinished(self, partitions: Iterable[TopicPartition]) -> int:
        """How many records of these are not done."""
        return sum(self._counts.get(where, 0) for where in partitions)

    def drop_waiting(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is not in work yet of these; nobody will commit it."""
        gone = set(partitions)
        kept = deque(task for task in self._ready if task.where not in gone)
        for task in self._ready:
            if task.where in gone:
                self._forget(task, len(self._lanes.pop(task.lane)) + 1)
        self._ready = kept
        for waiting in self._lanes.values():
            if waiting and waiting[0].where in gone:
                self._forget(waiting[0], len(waiting))
                waiting.clear()

    def _forget(self, task: Task, count: int) -> None:
        self.size -= count
        left = self._counts[task.where] - count
        if left:
            self._counts[task.where] = left
        else:
            del self._counts[task.where]
