"""What the application has got of what was read, and what of it counts as done.

Positions in the subscription run ahead: they stand behind everything that was decoded. Records that are decoded and not
handed out yet are held here; those that were handed out since the last poll are still being worked on, so that a commit
by itself leaves them out.

A KeyboardInterrupt may come between any two steps of handing out. `owed` says where the partitions stood before, from
the first step until the application has its records: whoever finds something there begins again from it.
"""

from collections.abc import Iterable, Iterator
from operator import length_hint

from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.consumer_record import AnyRecord
from barnabas.types import TopicPartition

__all__ = ["DeliveredRecords", "Held"]

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Held:
    """Decoded records of one partition, on their way through `iterator`."""

    __slots__ = ("_count", "_start", "iterator", "records", "where")

    def __init__(self, where: TopicPartition, records: list[AnyRecord], start: OffsetAndMetadata) -> None:
        """`start`: what could be committed before the first of them."""
        self.where = where
        self.records = records
        self.iterator: Iterator[AnyRecord] = iter(records)
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


class DeliveredRecords:
    """See the module."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self.current: Held | None = None
        """What an iteration goes through now."""
        self.owed: dict[TopicPartition, OffsetAndMetadata] = {}
        """Where partitions stood before what is being handed out. Emptied by whoever hands out, by an assignment right
        before the return, where nothing can come between."""
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

    def owe(self, where: TopicPartition, before: OffsetAndMetadata) -> None:
        """The partition moves on from `before` now."""
        self.owed.setdefault(where, before)

    def take(self, where: TopicPartition, records: list[AnyRecord], before: OffsetAndMetadata) -> Held:
        """Decoded records, to be handed out; the position, which was `before`, stands behind them."""
        held = self._held[where] = Held(where, records, before)
        return held

    def return_all(self, where: TopicPartition, before: OffsetAndMetadata) -> None:
        """What was read from `before` up to the position goes into the application's hands."""
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
        self.owed = {}

    def return_some(self, held: Held, limit: int) -> list[AnyRecord]:
        """Up to `limit` of them at once, as a poll returns them."""
        before = held.handed_out
        stood = held.behind(before)
        self.owe(held.where, stood)
        self._in_hand.setdefault(held.where, stood)
        records = held.records[before : before + limit]
        self._keep(held.where, held.split(before + len(records)))
        return records

    def interrupt(self) -> None:
        """The iteration ends behind the record that it gave last, which is still in the application's hands."""
        held = self.current
        if held is not None:
            count = held.handed_out
            self._in_hand[held.where] = held.behind(count - 1)
            self.owe(held.where, held.behind(count))
            self.current = None
            self._keep(held.where, held.split(count))
            del self.owed[held.where]

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
            self.owed.pop(where, None)  # last: what interrupts this begins again

    # --- positions --------------------------------------------------------------------------------------------------

    def position(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """Behind what the application has got; None if there is no valid position. Raises UsageError."""
        position = self._subscription.position(where)
        owed = self.owed.get(where)
        if owed is not None:
            return owed
        held = self._held.get(where)
        if held is not None and not held.is_empty:
            return held.behind(held.handed_out)
        return None if position is None else OffsetAndMetadata(position.offset, "", position.offset_epoch)

    def consumed(self) -> Offsets:
        """What a commit of the application's means: all that it has got."""
        offsets = self._subscription.consumed()
        for where, held in self._held.items():
            if where in offsets and not held.is_empty:
                offsets[where] = held.behind(held.handed_out)
        return self._bounded(offsets, self.owed)

    def done(self) -> Offsets:
        """What may be committed without being asked: what it has got and come back after."""
        offsets = self._subscription.consumed()
        for where, held in self._held.items():
            if where in offsets and (held is self.current or not held.is_empty):
                count = held.handed_out
                offsets[where] = held.behind(count - 1 if held is self.current else count)
        return self._bounded(self._bounded(offsets, self._in_hand), self.owed)

    @staticmethod
    def _bounded(offsets: Offsets, bounds: Offsets) -> Offsets:
        """As far as these partitions go, and no other."""
        for where, before in bounds.items():
            if where in offsets:
                offsets[where] = before
        return offsets
