"""The state of partitions' replicas: which are in sync, eligible to lead, or offline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas import Admin
from barnabas.client.admin.topics import EligibleLeaders
from barnabas.connection.cluster import PartitionView, TopicView
from barnabas.errors import UnsupportedVersion
from barnabas.types import TopicPartition

__all__ = [
    "MISSING_REPLICAS",
    "eligible_leaders",
    "ids_text",
    "is_under_replicated",
    "replica_state",
    "replication_counts",
]

MISSING_REPLICAS: Final = {"elr": "elr", "last_known_leaders": "last leader", "offline_replicas": "offline"}
"""Lists of `replica_state` by their keys, with their headers, that are empty while all replicas are in sync."""


def eligible_leaders(admin: Admin, views: Iterable[TopicView]) -> Mapping[TopicPartition, EligibleLeaders]:
    """Returns the eligible leader replicas of topics that have an ISR which is not full; the others have none, and
    brokers before Kafka 3.8 do not tell."""
    names = [view.name for view in views if any(map(is_under_replicated, view.partitions.values()))]
    if not names:
        return {}
    try:
        return admin.eligible_leaders(names)
    except UnsupportedVersion:
        return {}


def is_under_replicated(partition: PartitionView) -> bool:
    """Returns whether a replica is not in the ISR."""
    return len(partition.in_sync_replicas) < len(partition.replicas)


def replica_state(partition: PartitionView, leaders: EligibleLeaders) -> dict[str, Any]:
    """Returns leader, replicas, ISR, ELR, last known leader and offline replicas as a command's report has them."""
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.in_sync_replicas),
        "elr": list(leaders.eligible_leader_replicas),
        "last_known_leaders": list(leaders.last_known_leaders),
        "offline_replicas": list(partition.offline_replicas),
    }


def replication_counts(views: Iterable[TopicView]) -> dict[str, int]:
    """Returns the numbers of partitions, of those that are under-replicated or without a leader, of replicas, and of
    replicas that are in sync."""
    partitions = [partition for view in views for partition in view.partitions.values()]
    return {
        "partitions": len(partitions),
        "under_replicated": sum(map(is_under_replicated, partitions)),
        "without_leader": sum(partition.leader < 0 for partition in partitions),
        "replicas": sum(len(partition.replicas) for partition in partitions),
        "in_sync_replicas": sum(len(partition.in_sync_replicas) for partition in partitions),
    }


def ids_text(node_ids: Sequence[int]) -> str:
    """`1,2,3`, or `-` for none."""
    return ",".join(map(str, node_ids)) or "-"
