"""Asking a transaction's coordinator before a partition takes the first records of it (KIP-890)."""

from __future__ import annotations  # functions in functions: their annotations would be worked out at every call

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import InvalidTxnState, KafkaError, TransactionAbortable
from barnabas.log.producers.verification_guards import Sender, VerificationGuard
from barnabas.log.unified_log import UnifiedLog
from barnabas.replication.partition import Partition
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["ClientSupport", "Grants", "verify"]

Grants = dict[TopicPartition, VerificationGuard | KafkaError]
"""What each partition's append has to show, or why it may not be; partitions without an entry need nothing."""


class ClientSupport(NamedTuple):
    """What a client's version of Produce or TxnOffsetCommit says of the client."""

    knows_abortable: bool
    """It understands TRANSACTION_ABORTABLE."""
    adds_partitions: bool
    """Its records take their partition into the transaction, and each transaction has an epoch of its own
    (transaction.version 2)."""


def verify(
    broker: Broker,
    transactional_id: str,
    batches: Mapping[Partition, Sender],
    support: ClientSupport,
    reply: Callable[[Grants], None],
) -> Grants | None:
    """Ask about the batches, all of one producer, of which some transaction has no records in their partition yet.

    The answer, if it is there at once; None: `reply` gets it later.
    """
    grants: Grants = {}
    guards: dict[TopicPartition, VerificationGuard] = {}
    logs: dict[TopicPartition, UnifiedLog] = {}
    for partition, sender in batches.items():
        log = partition.log
        try:
            guard = log.begin_verification(sender, starts_at_zero=support.adds_partitions)
        except KafkaError as error:
            grants[partition.topic_partition] = error
            continue
        if guard is not None:
            guards[partition.topic_partition] = guard
            logs[partition.topic_partition] = log
    if not guards:
        return grants
    if not support.adds_partitions and not broker.config.transaction_partition_verification_enable:
        return grants | guards
    producer_id, producer_epoch, _ = next(iter(batches.values()))
    asked = True
    early: Grants | None = None

    def answered(outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
        nonlocal early
        for place, guard in guards.items():
            error = outcomes.get(place)
            grants[place] = guard if error is None else _for_client(error, support)
            if error is not None and not error.retriable:
                # A guard that is kept for a batch that comes again would keep the next transaction's out.
                logs[place].refuse_verification(producer_id, guard)
        if asked:
            early = grants
        else:
            reply(grants)

    broker.transactions.verify_or_add(
        transactional_id,
        producer_id,
        producer_epoch,
        list(guards),
        verify_only=not support.adds_partitions,
        reply=answered,
    )
    asked = False
    return early


def _for_client(error: KafkaError, support: ClientSupport) -> KafkaError:
    if isinstance(error, TransactionAbortable) and not support.knows_abortable:
        return InvalidTxnState(error.message)
    return error
