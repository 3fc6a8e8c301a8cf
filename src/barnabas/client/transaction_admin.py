"""Transactions from outside: which there are, who writes where, which ones nobody will ever end, and ending those.

A transaction hangs where a partition waits for its end and no coordinator knows of it any more: readers with
read_committed stop in front of it for ever. Source: KIP-664; KIP-994 and KIP-1152 for the filters.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas.client.admin_base import AdminBase, partition_answers
from barnabas.client.cluster import TRANSACTION_KEY
from barnabas.client.core.offset_messages import by_topic
from barnabas.client.deadline import Deadline
from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidRegularExpression,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnsupportedVersion,
    UsageError,
    error_for,
)
from barnabas.types import TopicPartition

__all__ = [
    "HangingTransaction",
    "ProducerOnPartition",
    "TransactionAdmin",
    "TransactionDescription",
    "TransactionListing",
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
_PARTITIONS_AT_ONCE: Final = 500
"""In one DescribeProducers request."""


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


class HangingTransaction(NamedTuple):
    """`transactional_id` is None where no coordinator knows the producer."""

    partition: TopicPartition
    producer: ProducerOnPartition
    transactional_id: str | None


class TransactionAdmin(AdminBase):
    """Calls about transactions."""

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of every broker, sorted. `pattern` is a regular expression for the whole id.

        Raises UsageError for a state that does not exist, UnsupportedVersion where a broker is too old for a filter.
        """
        from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

        request = ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=sorted(producer_ids),
            duration_filter=running_longer_than_ms,
            transactional_id_pattern=pattern,
        )
        needed = PATTERN_FROM if pattern is not None else DURATION_FROM if running_longer_than_ms >= 0 else 0

        def ask(node_id: int, deadline: Deadline) -> Any:
            connection = self.cluster.connection(node_id, deadline)
            version = connection.version_of(ListTransactionsRequest)
            if version < needed:
                raise UnsupportedVersion(f"broker {node_id} is too old for this filter: ListTransactions v{version}")
            response = connection.call(request, deadline, version=version)
            if response.error_code == InvalidRegularExpression.code:
                raise InvalidRegularExpression(f"{pattern!r} is no regular expression")
            if response.error_code:
                raise error_for(response.error_code)
            return response

        found = []
        for node_id in self._retrying(lambda deadline: self.cluster.refresh((), deadline=deadline)).brokers:
            response = self._retrying(partial(ask, node_id))
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise UsageError(f"transactions are never in state {unknown}, but in {', '.join(STATES)}")
            found += [
                TransactionListing(t.transactional_id, node_id, t.producer_id, t.transaction_state)
                for t in response.transaction_states
            ]
        return sorted(found)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Raises TransactionalIdNotFound."""
        from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest

        response = self.cluster.call_coordinator(
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            check=lambda r: int(r.transaction_states[0].error_code),
            key_type=TRANSACTION_KEY,
        )
        found = response.transaction_states[0]
        if found.error_code:
            missing = found.error_code == TransactionalIdNotFound.code
            raise error_for(found.error_code, f"transactional id {transactional_id!r} is not known" if missing else "")
        return TransactionDescription(
            transactional_id,
            self.cluster.coordinator_id(transactional_id, key_type=TRANSACTION_KEY),
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            tuple(sorted(TopicPartition(topic.topic, p) for topic in found.topics for p in topic.partitions)),
        )

    def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerOnPartition]]:
        """The producers that the partitions' leaders remember, or one broker as a replica. Raises KafkaError."""
        from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

        def request(asked: Collection[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=ids) for name, ids in by_topic(asked).items()]
            )

        wanted = list(partitions)
        found: dict[TopicPartition, Any] = {}
        for first in range(0, len(wanted), _PARTITIONS_AT_ONCE):
            found |= self._by_leader(wanted[first : first + _PARTITIONS_AT_ONCE], request, node_id=broker_id)
        return {
            tp: [
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
            for tp, answer in found.items()
        }

    def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write the marker that no coordinator will write. Raises the leader's KafkaError.

        An epoch of the coordinator below 0 says that the partition saw no marker of the producer yet: 0 is then below
        that of every coordinator.
        """
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

        def answers(response: Any) -> Iterable[tuple[TopicPartition, int, Any]]:
            for result in response.markers:
                yield from partition_answers(result)

        try:
            self._by_leader([partition], lambda _: WriteTxnMarkersRequest(markers=[marker]), answers)
        except InvalidProducerEpoch:
            raise InvalidProducerEpoch(f"{partition} knows producer {producer_id} in a newer epoch") from None
        except TransactionCoordinatorFenced:
            raise TransactionCoordinatorFenced(f"{partition} has a marker of a newer coordinator epoch") from None

    def find_hanging(
        self,
        partitions: Collection[TopicPartition],
        *,
        now_ms: int,
        max_timeout_ms: int,
        broker_id: int | None = None,
    ) -> list[HangingTransaction]:
        """Transactions that were written to longer ago than any may last, and that no coordinator will end."""
        producers = self.describe_producers(partitions, broker_id=broker_id)
        candidates = [
            (tp, producer)
            for tp, found in producers.items()
            for producer in found
            if producer.current_transaction_start_offset >= 0 and now_ms - producer.last_timestamp > max_timeout_ms
        ]
        if not candidates:
            return []
        ids = {producer.producer_id for _, producer in candidates}
        owners = {t.producer_id: t.transactional_id for t in self.list_transactions(producer_ids=ids)}
        pending = self._pending(owners)
        return [
            HangingTransaction(tp, producer, owners.get(producer.producer_id))
            for tp, producer in sorted(candidates)
            if tp not in pending.get(producer.producer_id, ())
        ]

    def _pending(self, owners: Mapping[int, str]) -> dict[int, tuple[TopicPartition, ...]]:
        """By producer id, the partitions that its coordinator will still write a marker to."""
        found = {}
        for producer_id, transactional_id in owners.items():
            try:
                description = self.describe_transaction(transactional_id)
            except TransactionalIdNotFound:
                continue
            if description.producer_id == producer_id:
                found[producer_id] = description.partitions
        return found
