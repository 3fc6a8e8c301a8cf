"""Finds hanging transactions: they are open in a partition and unknown to every coordinator, so that nothing ends them.

Consumers with read_committed stop before them for ever. Source: KIP-664.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas import Admin
from barnabas.client.admin.transactions import ProducerOnPartition
from barnabas.client.errors import ItemsFailed
from barnabas.errors import TransactionalIdNotFound
from barnabas.types import ProducerId, TopicPartition

__all__ = ["HangingTransaction", "find_hanging_transactions"]

PARTITIONS_AT_ONCE: Final = 500
"""The number of partitions in one call of describe_producers."""


class HangingTransaction(NamedTuple):
    """`transactional_id` is None where no coordinator knows the producer."""

    partition: TopicPartition
    producer: ProducerOnPartition
    transactional_id: str | None


def find_hanging_transactions(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    *,
    now_ms: int,
    max_timeout_ms: int,
    broker_id: int | None = None,
) -> list[HangingTransaction]:
    """Returns the transactions whose last record is too old for any open transaction, and that no coordinator ends."""
    candidates: list[tuple[TopicPartition, ProducerOnPartition]] = []
    for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
        chunk = partitions[first : first + PARTITIONS_AT_ONCE]
        candidates += [
            (partition, producer)
            for partition, producers in admin.describe_producers(chunk, broker_id=broker_id).items()
            for producer in producers
            if producer.current_transaction_start_offset >= 0 and now_ms - producer.last_timestamp > max_timeout_ms
        ]
    if not candidates:
        return []
    ids = {producer.producer_id for _, producer in candidates}
    owners = {t.producer_id: t.transactional_id for t in admin.list_transactions(producer_ids=ids)}
    pending = _pending(admin, owners)
    return [
        HangingTransaction(partition, producer, owners.get(producer.producer_id))
        for partition, producer in sorted(candidates)
        if partition not in pending.get(producer.producer_id, ())
    ]


def _pending(admin: Admin, owners: Mapping[ProducerId, str]) -> dict[ProducerId, tuple[TopicPartition, ...]]:
    """Returns for each producer id the partitions that its coordinator will still write a marker to."""
    try:
        found = admin.describe_transactions(owners.values())
    except ItemsFailed as error:
        if not error.only(TransactionalIdNotFound):  # the id was removed since it was listed: no marker is pending
            raise
        found = error.succeeded
    return {t.producer_id: t.partitions for t in found.values() if owners.get(t.producer_id) == t.transactional_id}
