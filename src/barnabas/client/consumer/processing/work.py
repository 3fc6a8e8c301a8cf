"""Records in a pool of workers: in which order they are worked on, and what of them may be committed.

Main class: `Work`. Whoever has threads calls it with a lock held, also `offsets`, which a commit asks for at any time.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.consumer.processing.keyed_work import KeyedWork, Task
from barnabas.client.consumer.processing.ordered_commits import OrderedCommits, decode_done
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["Work"]

BEHIND_GAPS: Final = 10
"""How many times as many records may be done behind a slow one as may wait."""


class Work:
    """See the module."""

    def __init__(
        self,
        ordered_by: str,
        limit: int,
        resumed_from: Callable[[TopicPartition], OffsetAndMetadata | None],
    ) -> None:
        """`limit`: records that wait or are in work. `resumed_from`: the commit that a partition's position comes from;
        its metadata may say what beyond it is done already."""
        self._keyed = KeyedWork(ordered_by, limit)
        self._commits = OrderedCommits(limit * (BEHIND_GAPS + 1))
        self._limit = limit
        self._resumed_from = resumed_from
        self._next: dict[TopicPartition, int] = {}
        """Behind the last record that came of each partition."""
        self._done_before: dict[TopicPartition, set[int]] = {}

    @property
    def room(self) -> int:
        """Records that may be added."""
        return max(min(self._limit - self._keyed.size, self._limit * (BEHIND_GAPS + 1) - self._commits.size), 0)

    @property
    def wants_more(self) -> bool:
        """Whether there is room for enough to be worth the trouble."""
        return self.room > self._limit // 2

    def add(self, records: Sequence[AnyRecord]) -> None:
        """Records of one partition, at most as many as there is room for. After a seek they may be earlier ones."""
        if not records:
            return
        where = TopicPartition(records[0].topic, records[0].partition)
        if records[0].offset < self._next.get(where, 0):
            self.forget([where])
        if where not in self._next:
            resumed = self._resumed_from(where)
            self._done_before[where] = set() if resumed is None else decode_done(resumed.offset, resumed.metadata)
        done_before = self._done_before[where]
        for record in records:
            self._commits.begin(where, record.offset, record.leader_epoch)
            if record.offset in done_before:
                done_before.discard(record.offset)
                self._commits.done(where, record.offset)
            else:
                self._keyed.add(where, record)
        self._next[where] = records[-1].offset + 1

    def take(self) -> Task | None:
        """The next record to work on, None if there is none just now."""
        return self._keyed.take()

    def done(self, task: Task) -> None:
        self._keyed.done(task)
        self._commits.done(task.where, task.record.offset)

    def unfinished(self, partitions: Iterable[TopicPartition]) -> int:
        """Records of these that are in work or wait."""
        return self._keyed.unfinished(partitions)

    def drop_waiting(self, partitions: Collection[TopicPartition]) -> None:
        """Work on no more of these; what is in work goes on."""
        self._keyed.drop_waiting(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They are somebody else's, or read from elsewhere."""
        self._keyed.drop_waiting(partitions)
        self._commits.forget(partitions)
        for where in partitions:
            self._next.pop(where, None)
            self._done_before.pop(where, None)

    def offsets(self, read: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: never beyond a record that is not done. `read`: how far each partition was read."""
        found = dict(read)
        for where, position in read.items():
            known = self._commits.committable(where)
            if known is not None and not (self._commits.is_idle(where) and position.offset >= known[0]):
                found[where] = OffsetAndMetadata(known[0], self._commits.metadata(where), known[1])
        return found
