"""What a transactional producer asks coordinators, and what their refusals mean."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.arguments import refused
from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata, by_topic, grouped
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
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
    from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

__all__ = [
    "ABORTABLE",
    "OFFSETS_V1_UNTIL",
    "PARTITIONS_UNTIL",
    "PREPARED_FROM",
    "Identified",
    "PreparedTransaction",
    "add_partitions_request",
    "added_error",
    "fenced",
    "init_error",
    "is_fenced",
    "offsets_error",
    "offsets_request",
    "prepared_transaction",
    "produce_error_is_fatal",
]

PARTITIONS_UNTIL: Final = 3
"""Later versions of AddPartitionsToTxn are the brokers' own."""
OFFSETS_V1_UNTIL: Final = 4
"""The last version of TxnOffsetCommit for transaction.version 0 and 1."""
PREPARED_FROM: Final = 6
"""InitProducerId for two-phase commits (KIP-939)."""

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
"""Refusals of coordinators that cost the transaction and not the producer."""


class Identified(NamedTuple):
    """Who asks."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class PreparedTransaction(NamedTuple):
    """What another system keeps of a transaction that it will decide about; `str` of it can be kept as text."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> "PreparedTransaction":
        """Of what `str` gave. Raises ValueError."""
        producer_id, _, producer_epoch = text.partition(":")
        return cls(int(producer_id), int(producer_epoch))


def prepared_transaction(what: str, given: object) -> PreparedTransaction:
    """Of an argument; a plain tuple does as well."""
    match given:
        case (int(producer_id), int(producer_epoch)):
            return PreparedTransaction(producer_id, producer_epoch)
    raise refused(what, given, "give a PreparedTransaction, or PreparedTransaction.parse(text)")


def init_error(code: int, transactional_id: str, *, two_phase: bool) -> KafkaError | None:
    """Why a coordinator gives no producer id, with the settings that it may lie in."""
    if not code:
        return None
    name = f"transactional id {transactional_id!r}"
    if code == TransactionalIdAuthorizationFailed.code:
        hint = ", or transaction.two.phase.commit.enable is false on the brokers" if two_phase else ""
        return TransactionalIdAuthorizationFailed(f"{name}: not for this user to use{hint}")
    if code == InvalidTransactionTimeout.code:
        return InvalidTransactionTimeout(f"{name}: transaction.timeout.ms is above the brokers' limit for it")
    return error_for(code, f"{name}: {error_for(code).kafka_name}")


def add_partitions_request(who: Identified, partitions: Collection[TopicPartition]) -> "AddPartitionsToTxnRequest":
    from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ],
    )


def added_error(response: Any) -> KafkaError | None:
    """Why the partitions are not in the transaction: the reason that holds up the others, if one does."""
    found = [
        error_for(answer.partition_error_code, f"{topic.name}-{answer.partition_index} cannot join the transaction")
        for topic in response.results_by_topic_v3_and_below
        for answer in topic.results_by_partition
        if answer.partition_error_code
    ]
    return min(found, key=lambda error: isinstance(error, OperationNotAttempted), default=None)


def offsets_request(
    who: Identified, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> "TxnOffsetCommitRequest":
    from barnabas.protocol.messages import txn_offset_commit as messages

    def partition(where: TopicPartition) -> messages.TxnOffsetCommitRequestPartition:
        wanted = offsets[where]
        return messages.TxnOffsetCommitRequestPartition(
            partition_index=where.partition,
            committed_offset=wanted.offset,
            committed_leader_epoch=wanted.leader_epoch,
            committed_metadata=wanted.metadata,
        )

    return messages.TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=grouped(
            offsets,
            partition,
            lambda name, partitions: messages.TxnOffsetCommitRequestTopic(name=name, partitions=partitions),
        ),
    )


def offsets_error(response: Any, group_id: str) -> KafkaError | None:
    """Why offsets are not in the transaction; what no repeat mends before what one may."""
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
    """Whether a batch that failed so takes the producer with it, not only the transaction."""
    return isinstance(
        error, ProducerFenced | ClusterAuthorizationFailed | TransactionalIdAuthorizationFailed | UnsupportedVersion
    )


def is_fenced(error: BarnabasError) -> bool:
    """Coordinators before 2.7 say that the epoch is wrong."""
    return isinstance(error, ProducerFenced | InvalidProducerEpoch)
