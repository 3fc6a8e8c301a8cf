"""Decides about EndTxn: whether the client may end the transaction, whether it retries, and which state follows.

Two rules: until version 4 of EndTxn the producer keeps its epoch (transaction.version 0 and 1); from version 5 on every
end gives it the next one, so that late records belong to no later transaction (KIP-890).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_MAX,
    IDLE,
    PREPARED,
    TV2,
    TransactionMetadata,
    TransactionState,
    is_exhausted,
)
from barnabas.errors import ConcurrentTransactions, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced
from barnabas.types import ProducerId

__all__ = ["EndTransaction", "answered", "ended", "prepared"]

S = TransactionState

_OUTCOMES = {True: (S.PREPARE_COMMIT, S.COMPLETE_COMMIT), False: (S.PREPARE_ABORT, S.COMPLETE_ABORT)}


class EndTransaction(NamedTuple):
    """The request to end a transaction."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    commit: bool
    transaction_version: int
    """The transaction version: 2 for clients whose epoch grows with every transaction, 0 for the others."""


def ended(
    current: TransactionMetadata, request: EndTransaction, now_ms: int, new_producer_id: Callable[[], ProducerId]
) -> TransactionMetadata | None:
    """Returns the prepared transaction; None if a retry finds it decided already.

    Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, InvalidTxnState.
    """
    if request.transaction_version >= TV2:
        begin = _ended_v2(current, request)
    else:
        begin = _ended_v1(current, request)
    return prepared(current, begin, request.transaction_version, now_ms, new_producer_id) if begin else None


def prepared(
    current: TransactionMetadata,
    state: TransactionState,
    transaction_version: int,
    now_ms: int,
    new_producer_id: Callable[[], ProducerId],
) -> TransactionMetadata:
    """Returns the transaction with its outcome; with version 2 that uses up the epoch."""
    changes: dict[str, Any] = {"client_transaction_version": transaction_version}
    if current.state in IDLE:
        # The transaction has no partitions; Kafka still requires a start time of every transaction that ends.
        changes["start_timestamp_ms"] = now_ms
    if transaction_version >= TV2:
        producer_id, producer_epoch = current.client_producer
        # The epoch of the producer that has ended it: its predecessor may have begun it, and is fenced.
        changes["last_producer_epoch"] = producer_epoch
        # Only a defect can have left the highest epoch here; the transaction must still be able to end.
        changes["producer_epoch"] = min(current.producer_epoch + 1, EPOCH_MAX)
        if is_exhausted(producer_epoch):
            changes["next_producer_id"] = new_producer_id()
            if current.is_kept:
                changes["next_producer_epoch"] = 0
        elif current.is_kept:
            changes["next_producer_epoch"] = producer_epoch + 1
        changes["previous_producer_id"] = producer_id
    return current.to(state, now_ms, **changes)


def answered(current: TransactionMetadata) -> tuple[int, int]:
    """Returns the producer id and epoch with which the client continues after a prepared or completed transaction."""
    return current.successor or current.client_producer


def _ended_v1(current: TransactionMetadata, request: EndTransaction) -> TransactionState | None:
    producer_id, producer_epoch = current.client_producer
    if request.producer_id != producer_id:
        raise InvalidProducerIdMapping(f"{request.transactional_id} belongs to producer {producer_id}")
    if request.producer_epoch != producer_epoch:
        raise ProducerFenced(f"{request.transactional_id} is at epoch {producer_epoch}, not {request.producer_epoch}")
    preparing, complete = _OUTCOMES[request.commit]
    if current.state is S.ONGOING:
        return preparing
    if current.state is complete:
        return None
    if current.state is preparing:
        raise ConcurrentTransactions("the end markers are being written")
    raise _wrong(current, request)


def _ended_v2(current: TransactionMetadata, request: EndTransaction) -> TransactionState | None:
    producer_id, producer_epoch = current.client_producer
    requested = request.producer_id, request.producer_epoch
    if requested == current.successor or (current.state in PREPARED and requested == current.client_producer):
        # The client has its next epoch from the response, and ends its next transaction, of which nothing has arrived.
        raise ConcurrentTransactions("the end markers of the last transaction are being written")
    bumped = producer_epoch == request.producer_epoch + 1
    overflowed = (
        current.previous_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_MAX - 1
        and producer_epoch == 0
    )
    if request.producer_id != producer_id and not overflowed:
        raise InvalidProducerIdMapping(f"{request.transactional_id} belongs to producer {producer_id}")
    same = request.producer_epoch == producer_epoch
    valid = {
        S.ONGOING: same,
        S.EMPTY: same,
        S.PREPARE_COMMIT: bumped or overflowed,
        S.PREPARE_ABORT: bumped or overflowed,
    }.get(current.state, same or bumped or overflowed)
    if not valid:
        raise ProducerFenced(f"{request.transactional_id} is at epoch {producer_epoch}, not {request.producer_epoch}")
    preparing, complete = _OUTCOMES[request.commit]
    if current.state is S.ONGOING:
        return preparing
    if current.state is preparing:
        raise ConcurrentTransactions("the end markers are being written")
    if current.state is complete and not same:
        return None
    if current.state in IDLE and same and not request.commit:
        # The client does not know whether anything of its transaction arrived: an abort is always in order.
        return S.PREPARE_ABORT
    if request.commit and not same:
        # No retry turns an abort into a commit: the coordinator has aborted by itself, at the timeout or for a newer
        # producer. INVALID_TXN_STATE would end programs that begin anew after PRODUCER_FENCED (KAFKA-20785).
        raise ProducerFenced(f"the coordinator has aborted the transaction of {request.transactional_id}")
    raise _wrong(current, request)


def _wrong(current: TransactionMetadata, request: EndTransaction) -> InvalidTxnState:
    what = "commit" if request.commit else "abort"
    return InvalidTxnState(f"cannot {what} {request.transactional_id}: it is in state {current.state.kafka_name}")
