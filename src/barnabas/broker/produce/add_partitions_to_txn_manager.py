"""Asks the transaction coordinator before a partition takes the first records of a transaction (KIP-890)."""

from __future__ import annotations  # annotations of nested functions would be evaluated at every call

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.errors import InvalidTxnState, KafkaError, TransactionAbortable
from barnabas.log.producers.verification_guards import Sender, VerificationGuard
from barnabas.log.unified_log import UnifiedLog
from barnabas.replication.partition import Partition
from barnabas.types import ProducerId, TopicPartition

__all__ = ["AddPartitionsToTxnManager", "ClientSupport", "VerificationResults"]

VerificationResults = dict[TopicPartition, VerificationGuard | KafkaError]
"""The guard that each partition's append needs, or why the append is refused. A partition without an entry needs no
guard."""


class ClientSupport(NamedTuple):
    """The abilities of a client, as its version of Produce or TxnOffsetCommit shows them."""

    knows_abortable: bool
    """The client understands TRANSACTION_ABORTABLE."""
    adds_partitions: bool
    """The client's records add their partition to the transaction, and each transaction has its own producer epoch
    (transaction.version 2)."""


class Coordinators(Protocol):
    """`transaction_router.TransactionRouter`, of which only this is used."""

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        reply: Callable[[dict[TopicPartition, KafkaError | None]], None],
    ) -> None:
        """Asks the coordinator of a transactional id."""


class AddPartitionsToTxnManager:
    """Verifies partitions with the transaction coordinator, or adds them to the transaction."""

    __slots__ = ("_coordinators", "_verification_enabled")

    def __init__(self, coordinators: Coordinators, verification_enabled: Callable[[], bool]) -> None:
        self._coordinators = coordinators
        self._verification_enabled = verification_enabled

    def verify(
        self,
        transactional_id: str,
        batches: Mapping[Partition, Sender],
        support: ClientSupport,
        reply: Callable[[VerificationResults], None],
    ) -> VerificationResults | None:
        """Verifies the batches of one producer whose transaction has no records in their partition yet.

        Returns the results if they are there at once. Returns None if `reply` gets them later.
        """
        results: VerificationResults = {}
        guards: dict[TopicPartition, VerificationGuard] = {}
        logs: dict[TopicPartition, UnifiedLog] = {}
        for partition, sender in batches.items():
            log = partition.log
            try:
                guard = log.begin_verification(sender, starts_at_zero=support.adds_partitions)
            except KafkaError as error:
                results[partition.topic_partition] = error
                continue
            if guard is not None:
                guards[partition.topic_partition] = guard
                logs[partition.topic_partition] = log
        if not guards:
            return results
        if not support.adds_partitions and not self._verification_enabled():
            return results | guards
        producer_id, producer_epoch, _ = next(iter(batches.values()))
        is_returning = True
        immediate: VerificationResults | None = None

        def on_outcomes(outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
            nonlocal immediate
            for topic_partition, guard in guards.items():
                error = outcomes.get(topic_partition)
                results[topic_partition] = guard if error is None else _for_client(error, support)
                if error is not None and not error.retriable:
                    # A guard that stays for a retried batch would refuse the batches of the next transaction.
                    logs[topic_partition].refuse_verification(producer_id, guard)
            if is_returning:
                immediate = results
            else:
                reply(results)

        self._coordinators.verify_or_add(
            transactional_id,
            producer_id,
            producer_epoch,
            list(guards),
            verify_only=not support.adds_partitions,
            reply=on_outcomes,
        )
        is_returning = False
        return immediate


def _for_client(error: KafkaError, support: ClientSupport) -> KafkaError:
    if isinstance(error, TransactionAbortable) and not support.knows_abortable:
        return InvalidTxnState(error.message)
    return error
