"""Decides about InitProducerId: which producer holds a transactional id, and which one is fenced (KIP-98, 360, 939).

Pure functions from the present state of the id to the next one. Sources: KIP-360 for a client that names its former
producer id, KIP-939 for one that keeps the transaction of its predecessor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.coordinator.transaction.end_txn import prepared
from barnabas.coordinator.transaction.transaction_metadata import (
    IDLE,
    NO_PARTITIONS,
    PREPARED,
    TV2,
    TransactionMetadata,
    TransactionState,
    is_exhausted,
)
from barnabas.errors import ConcurrentTransactions, ProducerFenced
from barnabas.types import NO_PRODUCER_EPOCH, NO_TIMESTAMP, ProducerId

__all__ = ["InitProducerId", "NewProducerId", "fenced", "initialised", "kept"]

S = TransactionState

NewProducerId = Callable[[], ProducerId]
"""Returns a producer id that was never used before; may raise KafkaError."""


class InitProducerId(NamedTuple):
    """The InitProducerId request."""

    transactional_id: str
    timeout_ms: int
    """The timeout; NO_TIMEOUT for a participant of a two-phase commit."""
    expected: tuple[ProducerId, int] | None = None
    """The client's former producer id and epoch; None for a new client."""
    keep_prepared: bool = False
    """Whether the new client keeps an ongoing transaction instead of aborting it."""


def initialised(
    current: TransactionMetadata | None, request: InitProducerId, now_ms: int, new_producer_id: NewProducerId
) -> TransactionMetadata:
    """Gives the transactional id to a new producer while no transaction is open. Raises ProducerFenced,
    ConcurrentTransactions."""
    if current is None:
        current = TransactionMetadata(new_producer_id(), request.timeout_ms, now_ms)
    _check(current, request.expected)
    assert current.state in IDLE, current
    changes: dict[str, Any] = _producer(current, request.expected, new_producer_id)
    return current.to(
        S.EMPTY,
        now_ms,
        timeout_ms=request.timeout_ms,
        partitions=NO_PARTITIONS,
        start_timestamp_ms=NO_TIMESTAMP,
        **changes,
    )


def fenced(
    current: TransactionMetadata, expected: tuple[ProducerId, int] | None, now_ms: int, new_producer_id: NewProducerId
) -> TransactionMetadata:
    """Aborts the open transaction of the former producer. The client retries and gets the epoch above the fencing one.
    Raises ProducerFenced."""
    _check(current, expected)
    return prepared(current, S.PREPARE_ABORT, TV2, now_ms, new_producer_id)


def kept(
    current: TransactionMetadata, expected: tuple[ProducerId, int] | None, now_ms: int, new_producer_id: NewProducerId
) -> TransactionMetadata:
    """Gives the open transaction to the new client. Its timeout stays: a prepared transaction must not become one that
    may be aborted. Raises ProducerFenced."""
    _check(current, expected)
    producer_id, producer_epoch = current.client_producer
    if is_exhausted(producer_epoch):
        producer_id, producer_epoch = new_producer_id(), -1
    return current.to(S.ONGOING, now_ms, next_producer_id=producer_id, next_producer_epoch=producer_epoch + 1)


def _check(current: TransactionMetadata, expected: tuple[ProducerId, int] | None) -> None:
    if expected is not None and expected != current.successor and not _is_known(current, *expected):
        raise ProducerFenced(f"producer {expected[0]} does not hold the transactional id any more")
    if current.state in PREPARED:
        raise ConcurrentTransactions("the end markers of the last transaction are being written")


def _is_known(current: TransactionMetadata, producer_id: ProducerId, producer_epoch: int) -> bool:
    """Returns whether this may be the current producer, or one that did not get the response with its new id."""
    if current.producer_epoch == NO_PRODUCER_EPOCH or producer_id == current.client_producer[0]:
        return True
    return producer_id == current.previous_producer_id and is_exhausted(producer_epoch)


def _producer(
    current: TransactionMetadata, expected: tuple[ProducerId, int] | None, new_producer_id: NewProducerId
) -> dict[str, int]:
    epoch = current.producer_epoch
    if is_exhausted(epoch) and (expected is None or expected[1] == epoch):
        last = epoch if expected is not None else NO_PRODUCER_EPOCH
        return {"producer_id": new_producer_id(), "producer_epoch": 0, "last_producer_epoch": last}
    if expected is None:
        return {"producer_epoch": epoch + 1, "last_producer_epoch": NO_PRODUCER_EPOCH}
    if epoch in (NO_PRODUCER_EPOCH, expected[1]):
        return {"producer_epoch": epoch + 1, "last_producer_epoch": epoch}
    if expected[1] == current.last_producer_epoch:
        # The answer to the same request was lost: a newer client would have cleared the last epoch.
        return {}
    raise ProducerFenced(f"epoch {expected[1]} of producer {expected[0]} is neither {epoch} nor the one before it")
