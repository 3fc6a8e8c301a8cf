"""Tracks which decoded records the application has received, and which of those it has processed.

The positions in the subscription are behind all decoded records. Records that are decoded and not delivered yet are
kept here. Delivered records count as processed when the application polls again, or commits them itself; an automatic
commit leaves out those that it still works on.

A KeyboardInterrupt may come between any two steps of a delivery. Until the application has its records,
`rollback_positions` holds the partitions' previous positions, from which the next poll starts after an interrupted one.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import length_hint

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["DecodedRecords", "DeliveredRecords"]

Offsets = dict[TopicPartition, OffsetAndMetadata]


class DecodedRecords:
    """Decoded records of one partition; the application receives them through `iterator`."""

    __slots__ = ("_count", "_start", "iterator", "partition", "records")

    def __init__(self, partition: TopicPartition, records: list[AnyRecord], start: OffsetAndMetadata) -> None:
        """Takes in `start` the offset to commit before the first record is processed."""
        self.partition = partition
        self.records = records
        self.iterator: Iterator[AnyRecord] = iter(records)
        self._start = start
        self._count = len(records)

    @property
    def delivered_count(self) -> int:
        """The number of records that the application has received, also while it takes more."""
        return self._count - length_hint(self.iterator)

    @property
    def is_empty(self) -> bool:
        return not length_hint(self.iterator)

    def offset_after(self, count: int) -> OffsetAndMetadata:
        """Returns the offset to commit once the first `count` records are processed."""
        if count <= 0:
            return self._start
        record = self.records[count - 1]
        return OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)

    def split(self, count: int) -> "DecodedRecords | None":
        """Returns the records after the first `count`, if there are any, and ends this iterator."""
        rest = self.records[count:]
        left = DecodedRecords(self.partition, rest, self.offset_after(count)) if rest else None
        self.stop()
        return left

    def stop(self) -> None:
        """Ends the iterator, which the application may be using."""
        self.records.clear()


class DeliveredRecords:
    def __init__(self, subscription: SubscriptionState) -> None:
        self.current: DecodedRecords | None = None
        """The records of the current iteration."""
        self.rollback_positions: Offsets = {}
        """The positions before the delivery in progress. The caller that delivers assigns an empty dict directly before
        it returns the records, where no interrupt can come in between."""
        self._subscription = subscription
        self._decoded: dict[TopicPartition, DecodedRecords] = {}
        self._in_progress: Offsets = {}
        """The positions before the last poll returned records of the partitions."""
        self._committed: Offsets = {}
        """The offsets that the application has committed itself since the last poll, of records that it had received:
        an automatic commit must not go back behind them."""

    # --- in and out -------------------------------------------------------------------------------------------------

    def mark_processed(self) -> None:
        """Marks all delivered records as processed: the application requests more."""
        self._in_progress.clear()
        self._committed.clear()
        current = self.current
        if current is not None:
            self.current = None
            if current.is_empty and self._decoded.get(current.partition) is current:
                del self._decoded[current.partition]

    def note_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Marks the delivered records before these offsets as processed: the application commits them."""
        consumed = self.consumed()
        for partition, committed in offsets.items():
            if partition in consumed:
                self._committed[partition] = min(committed, consumed[partition], key=lambda each: each.offset)

    def note_rollback(self, partition: TopicPartition, before: OffsetAndMetadata) -> None:
        """Notes the position `before`, from which the partition moves on now."""
        self.rollback_positions.setdefault(partition, before)

    def hold(self, partition: TopicPartition, records: list[AnyRecord], before: OffsetAndMetadata) -> DecodedRecords:
        """Keeps decoded records for delivery. The position was `before`, and is behind them now."""
        decoded = self._decoded[partition] = DecodedRecords(partition, records, before)
        return decoded

    def deliver_all(self, partition: TopicPartition, before: OffsetAndMetadata) -> None:
        """Notes that the application receives the records from `before` up to the position at once."""
        self._in_progress.setdefault(partition, before)

    def next_decoded(self) -> DecodedRecords | None:
        """Returns records that were decoded earlier and may be delivered now."""
        for partition, decoded in self._decoded.items():
            if self._subscription.is_fetchable(partition) and not decoded.is_empty:
                return decoded
        return None

    def begin_iteration(self, decoded: DecodedRecords) -> None:
        """Notes that the application iterates over these records."""
        self.current = decoded
        self.rollback_positions = {}

    def deliver(self, decoded: DecodedRecords, limit: int) -> list[AnyRecord]:
        """Returns up to `limit` of the records for a poll."""
        begin = decoded.delivered_count
        before = decoded.offset_after(begin)
        self.note_rollback(decoded.partition, before)
        self._in_progress.setdefault(decoded.partition, before)
        records = decoded.records[begin : begin + limit]
        self._keep(decoded.partition, decoded.split(begin + len(records)))
        return records

    def end_iteration(self) -> None:
        """Ends the iteration after its last record, on which the application still works."""
        decoded = self.current
        if decoded is not None:
            count = decoded.delivered_count
            self._in_progress[decoded.partition] = decoded.offset_after(count - 1)
            self.note_rollback(decoded.partition, decoded.offset_after(count))
            self.current = None
            self._keep(decoded.partition, decoded.split(count))
            del self.rollback_positions[decoded.partition]

    def _keep(self, partition: TopicPartition, left: DecodedRecords | None) -> None:
        if left is None:
            self._decoded.pop(partition, None)
        else:
            self._decoded[partition] = left

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops partitions that were given up, or for which the application has sought another position."""
        for partition in partitions:
            self._in_progress.pop(partition, None)
            self._committed.pop(partition, None)
            decoded = self._decoded.pop(partition, None)
            if decoded is not None:
                decoded.stop()
                if decoded is self.current:
                    self.current = None
            self.rollback_positions.pop(partition, None)  # the last step, so that an interrupted drop begins again

    # --- positions --------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Returns the offset behind the last delivered record, None without a valid position. Raises UsageError."""
        position = self._subscription.position(partition)
        before = self.rollback_positions.get(partition)
        if before is not None:
            return before
        decoded = self._decoded.get(partition)
        if decoded is not None and not decoded.is_empty:
            return decoded.offset_after(decoded.delivered_count)
        return None if position is None else OffsetAndMetadata(position.offset, "", position.offset_epoch)

    def consumed(self) -> Offsets:
        """Returns the offsets behind all delivered records, for the application's own commits."""
        offsets = self._subscription.consumed()
        for partition, decoded in self._decoded.items():
            if partition in offsets and not decoded.is_empty:
                offsets[partition] = decoded.offset_after(decoded.delivered_count)
        return self._limited(offsets, self.rollback_positions)

    def processed(self) -> Offsets:
        """Returns the offsets behind all processed records, for automatic commits."""
        offsets = self._subscription.consumed()
        for partition, decoded in self._decoded.items():
            if partition in offsets and (decoded is self.current or not decoded.is_empty):
                count = decoded.delivered_count
                offsets[partition] = decoded.offset_after(count - 1 if decoded is self.current else count)
        offsets = self._limited(self._limited(offsets, self._in_progress), self.rollback_positions)
        if self._committed:
            consumed = self.consumed()
            for partition, committed in self._committed.items():
                if partition in offsets and offsets[partition].offset < committed.offset <= consumed[partition].offset:
                    offsets[partition] = committed
        return offsets

    @staticmethod
    def _limited(offsets: Offsets, limits: Offsets) -> Offsets:
        for partition, before in limits.items():
            if partition in offsets:
                offsets[partition] = before
        return offsets
