"""What the application has got of what was read, and what of it counts as done.

Positions in the subscription run ahead: they stand behind everything that was decoded. Records that are decoded and not
handed out yet are held here; those that were handed out since the last poll are still being worked on, so that a commit
by itself leaves them out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import length_hint

from barnabas.client.core.offset_messages import OffsetAndMetadata
from barnabas.client.core.subscription import SubscriptionState
from barnabas.records.consumer_kernel import ConsumerRecord
from barnabas.types import TopicPartition

__all__ = ["Handing", "Held"]


class Held:
    """Decoded records of one partition, on their way through `iterator`."""

    __slots__ = ("_count", "_start", "iterator", "records", "where")

    def __init__(self, where: TopicPartition, records: list[ConsumerRecord], start: OffsetAndMetadata) -> None:
        """`start`: what could be committed before the first of them."""
        self.where = where
        self.records = records
        self.iterator: Iterator[ConsumerRecord] = iter(records)
        self._start = start
        self._count = len(records)

    @property
    def handed_out(self) -> int:
        """How many the application has got; may be asked while it takes more."""
        return self._count - length_hint(self.iterator)

    @property
    def is_empty(self) -> bool:
        return not length_hint(self.iterator)

    def behind(self, count: int) -> OffsetAndMetadata:
        """What can be committed once the first `count` are done."""
        if count <= 0:
            return self._start
        record = self.records[count - 1]
        return OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)

    def split(self, count: int) -> "Held | None":
        """What comes after the first `count`, as records of their own; this iterator ends here."""
        rest = self.records[count:]
        left = Held(self.where, rest, self.behind(count)) if rest else None
        self.stop()
        return left

    def stop(self) -> None:
        """Whoever goes through the iterator finds its end."""
        self.records.clear()


class Handing:
    """See the module."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self.current: Held | None = None
        """What an iteration goes through now."""
        self._subscription = subscription
        self._held: dict[TopicPartition, Held] = {}
        self._in_hand: dict[TopicPartition, OffsetAndMetadata] = {}
        """Where the partitions stood before the last poll returned records of them."""

    # --- in and out -------------------------------------------------------------------------------------------------

    def came_back(self) -> None:
        """The application asks for more: all that it has got is done."""
        self._in_hand.clear()
        current = self.current
        if current is not None:
            self.current = None
            if current.is_empty and self._held.get(current.where) is current:
                del self._held[current.where]

    def take(self, where: TopicPartition, records: list[ConsumerRecord], before: OffsetAndMetadata) -> Held:
        """Decoded records, to be handed out; the position, which was `before`, stands behind them."""
        held = self._held[where] = Held(where, records, before)
        return held

    def return_all(self, where: TopicPartition, before: OffsetAndMetadata) -> None:
        """What was read from `before` up to the position is in the application's hands."""
        self._in_hand.setdefault(where, before)

    def next_held(self) -> Held | None:
        """What was decoded earlier and may be handed out now."""
        for where, held in self._held.items():
            if self._subscription.is_fetchable(where) and not held.is_empty:
                return held
        return None

    def iterate(self, held: Held) -> None:
        """The application goes through these, one by one."""
        self.current = held

    def return_some(self, held: Held, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` of them at once, as a poll returns them."""
        before = held.handed_out
        self._in_hand.setdefault(held.where, held.behind(before))
        records = held.records[before : before + limit]
        self._keep(held.where, held.split(before + len(records)))
        return records

    def take_back(self, records: Sequence[ConsumerRecord]) -> None:
        """What `return_some` gave has not come to the application: it gets it with the next poll."""
        groups: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            groups.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for where, group in groups.items():
            before = self._in_hand.pop(where, None)
            if before is None:
                continue  # dropped since
            left = self._held.get(where)
            rest = left.records[left.handed_out :] if left is not None else []
            self._held[where] = Held(where, [*group, *rest], before)

    def interrupt(self) -> None:
        """The iteration ends behind the record that it gave last, which is still in the application's hands."""
        held, self.current = self.current, None
        if held is not None:
            count = held.handed_out
            self._in_hand[held.where] = held.behind(count - 1)
            self._keep(held.where, held.split(count))

    def _keep(self, where: TopicPartition, left: Held | None) -> None:
        if left is None:
            self._held.pop(where, None)
        else:
            self._held[where] = left

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """They were given up, or the application has sought elsewhere."""
        for where in partitions:
            self._in_hand.pop(where, None)
            held = self._held.pop(where, None)
            if held is not None:
                held.stop()
                if held is self.current:
                    self.current = None

    # --- positions --------------------------------------------------------------------------------------------------

    def position(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """Behind what the application has got; None if there is no valid position. Raises UsageError."""
        position = self._subscription.position(where)
        held = self._held.get(where)
        if held is not None and not held.is_empty:
            return held.behind(held.handed_out)
        return None if position is None else OffsetAndMetadata(position.offset, "", position.offset_epoch)

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What a commit of the application's means: all that it has got."""
        offsets = self._subscription.consumed()
        for where, held in self._held.items():
            if where in offsets and not held.is_empty:
                offsets[where] = held.behind(held.handed_out)
        return offsets

    def done(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What may be committed without being asked: what it has got and come back after."""
        offsets = self._subscription.consumed()
        for where, held in self._held.items():
            if where in offsets and (held is self.current or not held.is_empty):
                count = held.handed_out
                offsets[where] = held.behind(count - 1 if held is self.current else count)
        for where, before in self._in_hand.items():
            if where in offsets:
                offsets[where] = before
        return offsets
