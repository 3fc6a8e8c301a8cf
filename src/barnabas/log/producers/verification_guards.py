"""Producers of whose transactions a coordinator is being asked, before their first records are written (KIP-890).

Records of a transaction that its coordinator does not know of would never be decided: they would hold the last stable
offset for ever. So the first append of a transaction shows a guard, given out before the coordinator was asked. An end
marker takes the guard away: an answer that it has overtaken no longer lets anything in.
"""

from typing import Final, NamedTuple

from barnabas.errors import OutOfOrderSequenceNumber
from barnabas.records.batch import BatchHeader
from barnabas.types import NO_SEQUENCE, ProducerId

__all__ = ["GUARDS_MAX", "Sender", "VerificationGuard", "VerificationGuards"]

GUARDS_MAX: Final = 10_000
"""The bound on the guards of one log. Above it the oldest is removed, and its producer has to be verified again."""


class Sender(NamedTuple):
    """The part of a batch that its verification is about. Coordinators write without sequences."""

    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int = NO_SEQUENCE

    @classmethod
    def of(cls, header: BatchHeader) -> "Sender":
        return cls(header.producer_id, header.producer_epoch, header.base_sequence)


class VerificationGuard:
    """Lets the first batch of a transaction in, while the log still knows it.

    Several batches of a producer may be on their way with one guard. When the first of them fails, those behind it must
    not get in before it comes again: `lowest_sequence` remembers where the transaction begins.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "started_ms", "starts_at_zero")

    def __init__(self, sender: Sender, *, starts_at_zero: bool, now_ms: int) -> None:
        self.producer_epoch = sender.producer_epoch
        self.lowest_sequence = sender.base_sequence
        self.starts_at_zero = starts_at_zero
        """Whether the producer's epoch is raised for each transaction, and its sequences begin anew with it."""
        self.started_ms = now_ms
        """The time of the last request for the guard."""

    def note(self, sender: Sender, now_ms: int) -> None:
        """One more batch asks to be let in."""
        self.started_ms = now_ms
        epoch, sequence = sender.producer_epoch, sender.base_sequence
        if epoch > self.producer_epoch or (epoch == self.producer_epoch and sequence < self.lowest_sequence):
            self.producer_epoch = epoch
            self.lowest_sequence = sequence

    def check_sequence(self, header: BatchHeader, *, known: bool) -> None:
        """Raises OutOfOrderSequenceNumber; `known`: the log has a batch of the producer."""
        sequence = header.base_sequence
        if sequence and self.starts_at_zero and not known:
            raise OutOfOrderSequenceNumber(
                f"Producer {header.producer_id} has written nothing here yet: its first sequence is {sequence}, not 0"
            )
        if sequence > self.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {header.producer_id}: {sequence} (incoming seq. number), "
                f"{self.lowest_sequence} (earliest seen sequence)"
            )


class VerificationGuards:
    """The guards of one log, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[ProducerId, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, sender: Sender, *, starts_at_zero: bool, now_ms: int) -> VerificationGuard:
        """The producer's guard, a new one if it has none; it is the youngest from now on."""
        guard = self._guards.pop(sender.producer_id, None)
        if guard is not None:
            guard.note(sender, now_ms)
        else:
            if len(self._guards) >= GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
            guard = VerificationGuard(sender, starts_at_zero=starts_at_zero, now_ms=now_ms)
        self._guards[sender.producer_id] = guard
        return guard

    def holds(self, producer_id: ProducerId, guard: VerificationGuard) -> bool:
        """Whether the producer still has this very guard."""
        return self._guards.get(producer_id) is guard

    def end(self, producer_id: ProducerId) -> None:
        """The transaction has begun or ended: older answers count no more."""
        self._guards.pop(producer_id, None)

    def refuse(self, producer_id: ProducerId, guard: VerificationGuard) -> None:
        """The coordinator has refused for good: the producer's next transaction owes nothing to this one."""
        if self.holds(producer_id, guard):
            del self._guards[producer_id]

    def remove_started_before(self, oldest_ms: int) -> None:
        """Forget the guards that nobody has used for long."""
        for producer_id in [key for key, guard in self._guards.items() if guard.started_ms <= oldest_ms]:
            del self._guards[producer_id]
