"""Operations on transactions: coordinators list and describe them, partition leaders know the producers."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas.client.admin.operations import AdminOperations, coordinator_moves, partitions_of
from barnabas.client.admin.topics import partition_answers, partition_error
from barnabas.client.offset_messages import by_topic
from barnabas.client.transaction_version import adds_partitions_implicitly, newest_end_txn_version
from barnabas.connection.network_client import TRANSACTION, Coordinator, Node
from barnabas.connection.retry import Answer, RequestBuilder
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
from barnabas.types import BrokerId, Offset, ProducerId, TopicPartition

__all__ = ["STATES", "ProducerOnPartition", "TransactionDescription", "TransactionListing", "TransactionOperations"]

_DURATION_FROM: Final = 1
"""The first version of ListTransactions that filters by duration."""
_PATTERN_FROM: Final = 2
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
    """A transactional id in its coordinator's list."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: ProducerId
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id's transaction. `partitions` are those that were written to and have no end marker yet;
    `start_time_ms` is -1 if no transaction is open."""

    transactional_id: str
    coordinator: BrokerId
    state: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class ProducerOnPartition(NamedTuple):
    """An idempotent or transactional producer that a partition knows; -1 for fields that do not apply."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: Offset


class TransactionOperations(AdminOperations):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """Returns the transactional ids of every broker, sorted; `pattern` is a regular expression for the whole id.

        Raises UsageError for a state that does not exist, ItemsFailed, by broker (UnsupportedVersion where one is too
        old for a filter).
        """
        from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

        driver = self._driver("list_transactions", timeout)
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=sorted(set(producer_ids)),
            duration_filter=running_longer_than_ms,
            transactional_id_pattern=pattern,
        )
        oldest = _PATTERN_FROM if pattern is not None else _DURATION_FROM if running_longer_than_ms >= 0 else 0

        def answers(response: Any, asked: list[BrokerId]) -> Iterable[Answer[BrokerId, list[TransactionListing]]]:
            if response.unknown_state_filters and not response.error_code:
                unknown = ", ".join(response.unknown_state_filters)
                raise UsageError(f"transactions are never in state {unknown}, but in {', '.join(STATES)}")
            error: KafkaError | int = response.error_code
            if error == InvalidRegularExpression.code:
                error = InvalidRegularExpression(f"{pattern!r} is no regular expression")
            listings = [
                TransactionListing(t.transactional_id, asked[0], t.producer_id, t.transaction_state)
                for t in response.transaction_states
            ]
            yield asked[0], error, listings

        builder = RequestBuilder(request, at_least=oldest)
        found = await self._at_brokers(driver, None, lambda _: builder, answers, is_retriable=coordinator_moves)
        return sorted(listing for listings in found.values() for listing in listings)

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Returns state, producer and partitions of transactional ids. Raises ItemsFailed (TransactionalIdNotFound,
        ...)."""
        from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest

        def coordinator(transactional_id: str) -> Coordinator:
            return Coordinator(transactional_id, TRANSACTION)

        def answers(response: Any, asked: list[str]) -> Iterable[Answer[str, TransactionDescription]]:
            node_id = self._client.coordinator(coordinator(asked[0]))
            for t in response.transaction_states:
                error: KafkaError | int = t.error_code
                if error == TransactionalIdNotFound.code:
                    error = TransactionalIdNotFound(f"transactional id {t.transactional_id!r} is not known")
                yield t.transactional_id, error, _description(t, -1 if node_id is None else node_id)

        return await self._at_coordinators(
            self._driver("describe_transactions", timeout),
            list(transactional_ids),
            coordinator,
            lambda asked: DescribeTransactionsRequest(transactional_ids=asked),
            answers,
        )

    async def describe_producers(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, list[ProducerOnPartition]]:
        """Returns the producers that the partitions' leaders know, or that one broker knows as a replica. Raises
        ItemsFailed."""
        from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

        driver = self._driver("describe_producers", timeout)
        wanted = partitions_of(partitions)

        def request(asked: list[TopicPartition]) -> DescribeProducersRequest:
            topics = [TopicRequest(name=name, partition_indexes=ids) for name, ids in by_topic(asked).items()]
            return DescribeProducersRequest(topics=topics)

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, list[ProducerOnPartition]]]:
            for partition, code, found in partition_answers(response):
                producers = [
                    ProducerOnPartition(
                        p.producer_id,
                        p.producer_epoch,
                        p.last_sequence,
                        p.last_timestamp,
                        p.coordinator_epoch,
                        p.current_txn_start_offset,
                    )
                    for p in found.active_producers
                ]
                yield partition, code and partition_error(code, partition, found.error_message), producers

        if broker_id is None:
            return await self._at_leaders(driver, wanted, request, answers)
        (broker,) = await self._brokers(driver, [broker_id])
        return await driver.run(wanted, lambda _: Node(broker), request, answers)

    async def abort_transaction(
        self,
        partition: tuple[str, int],
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timeout: float | None = None,
    ) -> None:
        """Writes the abort marker that no coordinator will write, so that read_committed readers go on.

        The numbers are those of `describe_producers`. Raises ItemsFailed (InvalidProducerEpoch,
        TransactionCoordinatorFenced, ...).
        """
        from barnabas.protocol.messages import write_txn_markers as messages

        topic_partition = TopicPartition(*partition)
        marker = messages.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                messages.WritableTxnMarkerTopic(
                    name=topic_partition.topic, partition_indexes=[topic_partition.partition]
                )
            ],
            # -1 says that the partition has no marker of the producer yet: 0 is below the epoch of every coordinator
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        request = messages.WriteTxnMarkersRequest(markers=[marker])

        def answers(response: Any, _: object) -> Iterable[Answer[TopicPartition, None]]:
            for result in response.markers:
                for marked, code, _answer in partition_answers(result):
                    yield marked, code and _abort_error(code, marked, producer_id), None

        driver = self._driver("abort_transaction", timeout, changes=True)
        await self._at_leaders(driver, [topic_partition], lambda _: request, answers)

    async def end_transaction(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        timeout: float | None = None,
    ) -> None:
        """Commits or aborts a transaction that a producer elsewhere has left open, when everything of it is written.

        For programs that decide about the transactions of several producers; the numbers are those of the producer, as
        its `metrics()` or `prepare_transaction()` tell them. No producer needs to run under the id. A repeat of the
        same end succeeds. Raises ProducerFenced if the id has a newer epoch or the transaction was aborted meanwhile,
        InvalidTxnState if it was committed or never begun.
        """
        from barnabas.protocol.messages.end_txn import EndTxnRequest

        driver = self._driver("end_transaction", timeout, changes=True)
        if not self._client.metadata.cluster.brokers:
            await driver.refresh_metadata()  # connections tell how the cluster ends transactions
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
        )
        await driver.send(
            RequestBuilder(request, at_most=newest_end_txn_version(adds_partitions_implicitly(self._client))),
            Coordinator(transactional_id, TRANSACTION),
            lambda response: response.error_code and _end_error(response.error_code, transactional_id),
        )


def _description(found: Any, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        found.transactional_id,
        BrokerId(coordinator),
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(sorted(TopicPartition(topic.topic, p) for topic in found.topics for p in topic.partitions)),
    )


def _abort_error(code: int, partition: TopicPartition, producer_id: int) -> KafkaError:
    if code == InvalidProducerEpoch.code:
        return InvalidProducerEpoch(f"{partition} knows producer {producer_id} in a newer epoch")
    if code == TransactionCoordinatorFenced.code:
        return TransactionCoordinatorFenced(f"{partition} has a marker of a newer coordinator epoch")
    return partition_error(code, partition)


def _end_error(code: int, transactional_id: str) -> KafkaError:
    if code in (InvalidProducerEpoch.code, ProducerFenced.code):
        return ProducerFenced(
            f"transactional id {transactional_id!r} is at another epoch, or was aborted: its transaction is over"
        )
    if code == InvalidTxnState.code:
        return InvalidTxnState(f"transactional id {transactional_id!r} has no transaction that could end so")
    if code == InvalidProducerIdMapping.code:
        return InvalidProducerIdMapping(f"transactional id {transactional_id!r} does not belong to this producer id")
    return error_for(code)
