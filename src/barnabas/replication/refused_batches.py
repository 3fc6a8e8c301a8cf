"""The batches of idempotent producers that a partition has refused for a passing reason, so that what comes behind them
is refused as well.

A producer has up to five batches of a partition on their way. When the first comes, this broker may not know yet that
it leads, or too few replicas may be in sync; a moment later nothing speaks against the second, except that the first is
missing. Refused by NOT_ENOUGH_REPLICAS, which all producers retry here, both are sent again in their order.

Where we differ: a batch behind one that was just refused for a passing reason is refused for a passing reason as well.
Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, or takes it if the producer is new. By that error librdkafka raises its
epoch in all partitions, where it then sends again what was written and not answered: these records are there twice with
Kafka.
"""

from typing import Final, NamedTuple

from barnabas.errors import NotEnoughReplicas
from barnabas.log.producers.producer_state_manager import CACHED_BATCHES, ProducerEntry
from barnabas.records.batch import BatchHeader

__all__ = ["PRODUCERS_MAX", "RefusedBatches"]

PRODUCERS_MAX: Final = 100
"""The bound on the producers of one partition. Above it, the one that was refused longest ago is forgotten."""


class _Refusal(NamedTuple):
    """The first batch of a producer that was refused. `behind` more may have been on their way."""

    epoch: int
    sequence: int
    behind: int


class RefusedBatches:
    """The refusals by producer, those of longest ago first."""

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: dict[int, _Refusal] = {}

    def note(self, header: BatchHeader) -> None:
        """Notes that a batch was refused."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer_id < 0 or sequence < 0:
            return
        known = self._refusals.pop(producer_id, None)
        if known is not None and known.epoch == epoch:
            sequence = min(sequence, known.sequence)
        if len(self._refusals) >= PRODUCERS_MAX:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[producer_id] = _Refusal(epoch, sequence, CACHED_BATCHES - 1)

    def check(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        """Raises NotEnoughReplicas for a batch that has a gap before it because the batches there were refused. `entry`
        is what the log knows of the producer.

        At most so many batches are refused as can have been on their way: a producer that never sends the missing ones
        again must learn of the gap.
        """
        refusal = self._refusals.get(header.producer_id)
        if refusal is None:
            return
        epoch, sequence, behind = refusal
        expected = sequence
        if entry is not None and entry.producer_epoch == epoch:
            expected = entry.last_sequence + 1
        if header.producer_epoch != epoch or not sequence <= expected < header.base_sequence or not behind:
            del self._refusals[header.producer_id]
            return
        self._refusals[header.producer_id] = refusal._replace(behind=behind - 1)
        raise NotEnoughReplicas(
            f"the batch of producer {header.producer_id} with the sequence {expected} was refused, and has to come "
            f"before that with {header.base_sequence}"
        )
