"""Makes the errors of a transactional producer from the responses of coordinators and brokers."""

from typing import Any, Final

from barnabas.errors import (
    BarnabasError,
    ClusterAuthorizationFailed,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTopic,
    InvalidTransactionTimeout,
    KafkaError,
    OffsetMetadataTooLarge,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownMemberId,
    UnknownProducerId,
    UnsupportedVersion,
    error_for,
)

__all__ = [
    "ABORTABLE",
    "add_partitions_error",
    "fenced",
    "init_error",
    "is_fenced",
    "offsets_error",
    "produce_error_is_fatal",
]

ABORTABLE: Final = (
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    InvalidProducerIdMapping,
    InvalidTopic,
    OffsetMetadataTooLarge,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownMemberId,
    UnknownProducerId,
)
"""The errors of coordinators that fail the transaction, but not the producer."""


def init_error(code: int, transactional_id: str, *, two_phase: bool) -> KafkaError | None:
    """Returns the error of InitProducerId, with the settings that may be the reason."""
    if not code:
        return None
    name = f"transactional id {transactional_id!r}"
    if code == TransactionalIdAuthorizationFailed.code:
        hint = ", or transaction.two.phase.commit.enable is false on the brokers" if two_phase else ""
        return TransactionalIdAuthorizationFailed(f"{name}: not for this user to use{hint}")
    if code == InvalidTransactionTimeout.code:
        return InvalidTransactionTimeout(f"{name}: transaction.timeout.ms is above the brokers' limit for it")
    return error_for(code, f"{name}: {error_for(code).kafka_name}")


def add_partitions_error(response: Any) -> KafkaError | None:
    """Returns the error of AddPartitionsToTxn: that of the partition because of which the others are refused."""
    found = [
        error_for(answer.partition_error_code, f"{topic.name}-{answer.partition_index} cannot join the transaction")
        for topic in response.results_by_topic_v3_and_below
        for answer in topic.results_by_partition
        if answer.partition_error_code
    ]
    return min(found, key=lambda error: isinstance(error, OperationNotAttempted), default=None)


def offsets_error(response: Any, group_id: str) -> KafkaError | None:
    """Returns the error of TxnOffsetCommit: the first that is not retriable, or else the first that is."""
    found = [
        error_for(answer.error_code, f"{topic.name}-{answer.partition_index}, group {group_id!r}: {_name(answer)}")
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code
    ]
    return min(found, key=lambda error: error.retriable, default=None)


def _name(answer: Any) -> str:
    return error_for(answer.error_code).kafka_name


def fenced(transactional_id: str) -> ProducerFenced:
    return ProducerFenced(
        f"transactional id {transactional_id!r}: another producer has taken it over, or the transaction was open for"
        " longer than transaction.timeout.ms; close this producer"
    )


def produce_error_is_fatal(error: BarnabasError) -> bool:
    """Whether the error of a batch fails the producer, not only the transaction."""
    return isinstance(
        error, ProducerFenced | ClusterAuthorizationFailed | TransactionalIdAuthorizationFailed | UnsupportedVersion
    )


def is_fenced(error: BarnabasError) -> bool:
    """Whether another producer has taken over the transactional id. Coordinators before 2.7 answer that the epoch is
    invalid."""
    return isinstance(error, ProducerFenced | InvalidProducerEpoch)
