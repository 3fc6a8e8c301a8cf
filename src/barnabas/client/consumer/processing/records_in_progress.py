"""The records that a pool of workers processes: their order, and the offsets that may be committed meanwhile."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.consumer.processing.ordered_queue import OrderedQueue, QueuedRecord
from barnabas.client.consumer.processing.processed_offsets import ProcessedOffsets, decode_done
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import NO_LEADER_EPOCH, TopicPartition

__all__ = ["RecordsInProgress"]

BEHIND_GAPS: Final = 10
"""The most records that may be done behind a slow one, as a multiple of the records that may wait."""


class RecordsInProgress:
    """The records of a pool. Only one thread at a time may use them: a pool of threads holds a lock for each call."""

    def __init__(
        self,
        ordered_by: str,
        limit: int,
        resumed_from: Callable[[TopicPartition], OffsetAndMetadata | None],
    ) -> None:
        """Takes in `limit` the most records that wait or are in progress. `resumed_from` returns the commit that a
        partition's position comes from, whose metadata may declare later records as done."""
        self._queue = OrderedQueue(ordered_by, limit)
        self._processed = ProcessedOffsets(limit * (BEHIND_GAPS + 1))
        self._limit = limit
        self._resumed_from = resumed_from
        self._next: dict[TopicPartition, int] = {}
        """The offset behind the last added record of each partition."""
        self._done_before: dict[TopicPartition, set[int]] = {}

    @property
    def room(self) -> int:
        """The number of records that may be added."""
        return max(min(self._limit - self._queue.size, self._limit * (BEHIND_GAPS + 1) - self._processed.size), 0)

    @property
    def wants_more(self) -> bool:
        """Whether there is room for enough records to be worth a fetch."""
        return self.room > self._limit // 2

    def add(self, records: Sequence[AnyRecord]) -> None:
        """Adds records of one partition, for which there must be room. After a seek they may be earlier ones."""
        if not records:
            return
        partition = TopicPartition(records[0].topic, records[0].partition)
        if records[0].offset < self._next.get(partition, 0):
            self.forget([partition])
        epoch_before: int = NO_LEADER_EPOCH
        if partition not in self._next:
            resumed = self._resumed_from(partition)
            if resumed is not None and resumed.offset == records[0].offset:
                epoch_before = resumed.leader_epoch
            self._done_before[partition] = set() if resumed is None else decode_done(resumed.offset, resumed.metadata)
        done_before = self._done_before[partition]
        for record in records:
            self._processed.begin(partition, record.offset, record.leader_epoch, epoch_before)
            if record.offset in done_before:
                done_before.discard(record.offset)
                self._processed.done(partition, record.offset)
            else:
                self._queue.add(partition, record)
        self._next[partition] = records[-1].offset + 1

    def take(self) -> QueuedRecord | None:
        return self._queue.take()

    def done(self, queued: QueuedRecord) -> None:
        self._queue.done(queued)
        self._processed.done(queued.partition, queued.record.offset)

    def give_up(self, queued: QueuedRecord) -> None:
        """Notes that the worker of a record has gone without doing it, so that no other record waits for it."""
        self._queue.done(queued)

    def unfinished(self, partitions: Iterable[TopicPartition]) -> int:
        return self._queue.unfinished(partitions)

    def drop_waiting(self, partitions: Collection[TopicPartition]) -> None:
        self._queue.drop_waiting(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions that are given up, or read from another position."""
        self._queue.drop_waiting(partitions)
        self._processed.forget(partitions)
        for partition in partitions:
            self._next.pop(partition, None)
            self._done_before.pop(partition, None)

    def offsets(self, read: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that may be committed: the `read` offset of each partition, or the offset of its first
        record that is not done."""
        found = dict(read)
        for partition, position in read.items():
            known = self._processed.committable(partition)
            if known is not None and not (self._processed.is_idle(partition) and position.offset >= known[0]):
                found[partition] = OffsetAndMetadata(known[0], self._processed.metadata(partition), known[1])
        return found
