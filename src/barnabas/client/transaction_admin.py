"""Transactions from outside: which there are, who writes where, which ones nobody will ever end, and ending those.

A transaction hangs where a partition waits for its end and no coordinator knows of it any more: readers with
read_committed stop in front of it for ever. Source: KIP-664; KIP-994 and KIP-1152 for the filters.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas.client.admin_base import AdminBase
from barnabas.client.cluster import TRANSACTION_KEY
from barnabas.client.core.admin.transactions import (
    ProducerOnPartition,
    TransactionDescription,
    TransactionListing,
    abort_error,
    abort_request,
    check_listing,
    list_request,
    marker_answers,
    oldest_version,
    producers_of,
    producers_request,
    transaction_description,
    transaction_error,
    transaction_listings,
)
from barnabas.client.deadline import Deadline
from barnabas.errors import (
    InvalidProducerEpoch,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnsupportedVersion,
)
from barnabas.types import TopicPartition

__all__ = [
    "HangingTransaction",
    "ProducerOnPartition",
    "TransactionAdmin",
    "TransactionDescription",
    "TransactionListing",
]

_PARTITIONS_AT_ONCE: Final = 500
"""In one DescribeProducers request."""


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

        request = list_request(states, producer_ids, running_longer_than_ms, pattern)
        needed = oldest_version(running_longer_than_ms, pattern)

        def ask(node_id: int, deadline: Deadline) -> Any:
            connection = self.cluster.connection(node_id, deadline)
            version = connection.version_of(ListTransactionsRequest)
            if version < needed:
                raise UnsupportedVersion(f"broker {node_id} is too old for this filter: ListTransactions v{version}")
            response = connection.call(request, deadline, version=version)
            check_listing(response, pattern)
            return response

        found: list[TransactionListing] = []
        for node_id in self._retrying(lambda deadline: self.cluster.refresh((), deadline=deadline)).brokers:
            found += transaction_listings(self._retrying(partial(ask, node_id)), node_id)
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
            raise transaction_error(found.error_code, transactional_id)
        coordinator = self.cluster.coordinator_id(transactional_id, key_type=TRANSACTION_KEY)
        return transaction_description(found, coordinator)

    def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerOnPartition]]:
        """The producers that the partitions' leaders remember, or one broker as a replica. Raises KafkaError."""
        wanted = list(partitions)
        found: dict[TopicPartition, Any] = {}
        for first in range(0, len(wanted), _PARTITIONS_AT_ONCE):
            found |= self._by_leader(wanted[first : first + _PARTITIONS_AT_ONCE], producers_request, node_id=broker_id)
        return {tp: producers_of(answer) for tp, answer in found.items()}

    def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write the marker that no coordinator will write. Raises the leader's KafkaError."""
        request = abort_request(
            partition, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
        )
        try:
            self._by_leader([partition], lambda _: request, marker_answers)
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            raise abort_error(error.code, partition, producer_id) from None

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
