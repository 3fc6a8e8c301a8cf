"""Transactions from outside: requests and what coordinators and leaders answer."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.admin.topics import partition_answers
from barnabas.client.offset_messages import by_topic
from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UsageError,
    error_for,
)
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
    from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
    from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

__all__ = [
    "STATES",
    "ProducerOnPartition",
    "TransactionDescription",
    "TransactionListing",
    "abort_error",
    "abort_request",
    "check_listing",
    "end_error",
    "list_request",
    "marker_answers",
    "oldest_version",
    "producers_of",
    "producers_request",
    "transaction_description",
    "transaction_error",
    "transaction_listings",
]

DURATION_FROM: Final = 1
PATTERN_FROM: Final = 2
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class TransactionListing(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """`partitions` are those that were written to and have no marker yet; `start_time_ms` is -1 where none is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class ProducerOnPartition(NamedTuple):
    """An idempotent or transactional producer that a partition remembers; -1 for what it has not."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


def list_request(
    states: Sequence[str], producer_ids: Collection[int], running_longer_than_ms: int, pattern: str | None
) -> "ListTransactionsRequest":
    from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

    return ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=sorted(producer_ids),
        duration_filter=running_longer_than_ms,
        transactional_id_pattern=pattern,
    )


def oldest_version(running_longer_than_ms: int, pattern: str | None) -> int:
    """Of ListTransactions that knows these filters."""
    return PATTERN_FROM if pattern is not None else DURATION_FROM if running_longer_than_ms >= 0 else 0


def check_listing(response: Any, pattern: str | None) -> None:
    """Raises what the broker objects to; UsageError for states that do not exist."""
    if response.error_code == InvalidRegularExpression.code:
        raise InvalidRegularExpression(f"{pattern!r} is no regular expression")
    if response.error_code:
        raise error_for(response.error_code)
    if response.unknown_state_filters:
        unknown = ", ".join(response.unknown_state_filters)
        raise UsageError(f"transactions are never in state {unknown}, but in {', '.join(STATES)}")


def transaction_listings(response: Any, node_id: int) -> list[TransactionListing]:
    return [
        TransactionListing(t.transactional_id, node_id, t.producer_id, t.transaction_state)
        for t in response.transaction_states
    ]


def transaction_error(code: int, transactional_id: str) -> KafkaError:
    missing = code == TransactionalIdNotFound.code
    return error_for(code, f"transactional id {transactional_id!r} is not known" if missing else "")


def transaction_description(found: Any, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        found.transactional_id,
        coordinator,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(sorted(TopicPartition(topic.topic, p) for topic in found.topics for p in topic.partitions)),
    )


def producers_request(partitions: Collection[TopicPartition]) -> "DescribeProducersRequest":
    from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=ids) for name, ids in by_topic(partitions).items()]
    )


def producers_of(answer: Any) -> list[ProducerOnPartition]:
    return [
        ProducerOnPartition(
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.current_txn_start_offset,
        )
        for p in answer.active_producers
    ]


def abort_request(
    partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> "WriteTxnMarkersRequest":
    """An epoch of the coordinator below 0 says that the partition saw no marker of the producer yet: 0 is then below
    that of every coordinator."""
    from barnabas.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(coordinator_epoch, 0),
    )
    return WriteTxnMarkersRequest(markers=[marker])


def marker_answers(response: Any) -> Iterable[tuple[TopicPartition, int, Any]]:
    for result in response.markers:
        yield from partition_answers(result)


def abort_error(code: int, partition: TopicPartition, producer_id: int) -> KafkaError:
    """Why a leader wrote no marker."""
    if code == InvalidProducerEpoch.code:
        return InvalidProducerEpoch(f"{partition} knows producer {producer_id} in a newer epoch")
    if code == TransactionCoordinatorFenced.code:
        return TransactionCoordinatorFenced(f"{partition} has a marker of a newer coordinator epoch")
    return error_for(code, f"{partition}: {error_for(code)}")


def end_error(code: int, transactional_id: str) -> KafkaError:
    """Why a coordinator did not end a transaction."""
    if code in (InvalidProducerEpoch.code, ProducerFenced.code):
        return ProducerFenced(f"transactional id {transactional_id!r} is at another epoch: its transaction is over")
    if code == InvalidTxnState.code:
        return InvalidTxnState(f"transactional id {transactional_id!r} has no transaction that could end so")
    if code == InvalidProducerIdMapping.code:
        return InvalidProducerIdMapping(f"transactional id {transactional_id!r} does not belong to this producer id")
    return error_for(code)
