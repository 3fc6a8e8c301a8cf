"""Records that a pool of workers processes: in which order, and which offsets may be committed meanwhile."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.consumer.processing.ordered_queue import OrderedQueue, QueuedRecord
from barnabas.client.consumer.processing.processed_offsets import ProcessedOffsets, decode_done
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["RecordsInProgress"]

BEHIND_GAPS: Final = 10
"""How many times as many records may be done behind a slow one as may wait."""


class RecordsInProgress:
    """Not safe for several threads: a pool of threads calls it with a lock held, also `offsets`, which commits call."""

    def __init__(
        self,
        ordered_by: str,
        limit: int,
        resumed_from: Callable[[TopicPartition], OffsetAndMetadata | None],
    ) -> None:
        """`limit`: records that wait or are in work. `resumed_from`: the commit that a partition's position comes from;
        its metadata may say what beyond it is done already."""
        self._keyed = OrderedQueue(ordered_by, limit)
        self._commits = ProcessedOffsets(limit * (BEHIND_GAPS + 1))
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
        partition = TopicPartition(records[0].topic, records[0].partition)
        if records[0].offset < self._next.get(partition, 0):
            self.forget([partition])
        if partition not in self._next:
            resumed = self._resumed_from(partition)
            self._done_before[partition] = set() if resumed is None else decode_done(resumed.offset, resumed.metadata)
        done_before = self._done_before[partition]
        for record in records:
            self._commits.begin(partition, record.offset, record.leader_epoch)
            if record.offset in done_before:
                done_before.discard(record.offset)
                self._commits.done(partition, record.offset)
            else:
                self._keyed.add(partition, record)
        self._next[partition] = records[-1].offset + 1

    def take(self) -> QueuedRecord | None:
        """The next record to work on, None if there is none just now."""
        return self._keyed.take()

    def done(self, task: QueuedRecord) -> None:
        self._keyed.done(task)
        self._commits.done(task.partition, task.record.offset)

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
        for partition in partitions:
            self._next.pop(partition, None)
            self._done_before.pop(partition, None)

    def offsets(self, read: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: never beyond a record that is not done. `read`: how far each partition was read."""
        found = dict(read)
        for partition, position in read.items():
            known = self._commits.committable(partition)
            if known is not None and not (self._commits.is_idle(partition) and position.offset >= known[0]):
                found[partition] = OffsetAndMetadata(known[0], self._commits.metadata(partition), known[1])
        return found
