"""The guards of transactions that are being verified with their coordinator before their first records are written
(KIP-890).

Records of a transaction that its coordinator does not know would never be committed or aborted: they would hold the
last stable offset for ever. So the first append of a transaction needs a guard, which the log issues before the
coordinator is asked. An end marker removes the guard: a response of the coordinator that comes after the marker admits
no records.

The coordinator may be on another broker. Then the first batch of a transaction can come before the end marker of the
transaction before it. Where each transaction has its own producer epoch, that marker leaves the guard of the next
transaction: its epoch tells them apart.

Where we differ: Kafka's end marker removes the guard of the next transaction, too, and its producer has to abort.
"""

from typing import Final, NamedTuple

from barnabas.errors import ConcurrentTransactions, OutOfOrderSequenceNumber
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
    """Admits the first batch of a transaction, while the log still has the guard.

    Several batches of a producer may be on their way with one guard. If the first of them fails, the later ones must be
    refused until it is retried: `lowest_sequence` is the first sequence of the transaction.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "started_ms", "starts_at_zero")

    def __init__(self, sender: Sender, *, starts_at_zero: bool, now_ms: int) -> None:
        self.producer_epoch = sender.producer_epoch
        self.lowest_sequence = sender.base_sequence
        self.starts_at_zero = starts_at_zero
        """Whether the producer has a new epoch in each transaction, so that its sequences start at 0."""
        self.started_ms = now_ms
        """The time of the last request for the guard."""

    def note(self, sender: Sender, now_ms: int) -> None:
        """Notes another batch that needs the guard."""
        self.started_ms = now_ms
        epoch, sequence = sender.producer_epoch, sender.base_sequence
        if epoch > self.producer_epoch or (epoch == self.producer_epoch and sequence < self.lowest_sequence):
            self.producer_epoch = epoch
            self.lowest_sequence = sequence

    def check_sequence(self, header: BatchHeader, *, known: bool) -> None:
        """Raises OutOfOrderSequenceNumber. `known` says that the log has a batch of the producer.

        A batch whose predecessor the log has just refused raises ConcurrentTransactions: producers send both again, in
        their order. Kafka raises OutOfOrderSequenceNumber, too, which franz-go takes for a loss of data.
        """
        sequence = header.base_sequence
        if self.starts_at_zero and sequence > self.lowest_sequence:
            raise ConcurrentTransactions(
                f"the batch of producer {header.producer_id} with the sequence {self.lowest_sequence} has to come "
                f"before that with {sequence}"
            )
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
        """Returns the producer's guard, a new one if there is none, and moves it to the end of the order."""
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
        return self._guards.get(producer_id) is guard

    def end(self, producer_id: ProducerId) -> None:
        """Removes the guard, because the transaction has begun or ended: older verifications no longer count."""
        self._guards.pop(producer_id, None)

    def end_before(self, producer_id: ProducerId, producer_epoch: int) -> None:
        """Removes the guard, because the transactions of lower epochs have ended, unless it is that of a later one."""
        guard = self._guards.get(producer_id)
        if guard is not None and not (guard.starts_at_zero and guard.producer_epoch >= producer_epoch):
            del self._guards[producer_id]

    def refuse(self, producer_id: ProducerId, guard: VerificationGuard) -> None:
        """Removes the guard, because the coordinator has refused the transaction for good."""
        if self.holds(producer_id, guard):
            del self._guards[producer_id]

    def remove_started_before(self, oldest_ms: int) -> None:
        """Removes the guards that have not been used for long."""
        for producer_id in [key for key, guard in self._guards.items() if guard.started_ms <= oldest_ms]:
            del self._guards[producer_id]
