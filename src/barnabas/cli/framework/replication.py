"""The state of partitions' replicas: which are in sync, eligible to lead, or offline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas import Admin
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.client.admin.topics import EligibleLeaders
from barnabas.connection.cluster import PartitionView, TopicView
from barnabas.errors import BarnabasError, UnsupportedVersion
from barnabas.types import TopicPartition

__all__ = [
    "MISSING_REPLICAS",
    "eligible_leaders",
    "has_missing_replicas",
    "ids_text",
    "is_under_replicated",
    "replica_state",
    "replication_counts",
    "running_reassignments",
]

MISSING_REPLICAS: Final = {
    "elr": "elr",
    "last_known_leaders": "last leader",
    "offline_replicas": "offline",
    "adding_replicas": "adding",
    "removing_replicas": "removing",
}
"""Lists of `replica_state` by their keys, with their headers, that are empty while all replicas are in sync."""
CONTROLLER_TIMEOUT_S: Final = 5.0
NOT_MOVING: Final = PartitionReassignment((), (), ())


def eligible_leaders(admin: Admin, views: Iterable[TopicView]) -> Mapping[TopicPartition, EligibleLeaders]:
    """Returns the eligible leader replicas of topics that have an ISR which is not full; the others have none, and
    brokers before Kafka 3.8 do not tell."""
    names = [view.name for view in views if any(map(has_missing_replicas, view.partitions.values()))]
    if not names:
        return {}
    try:
        return admin.eligible_leaders(names)
    except UnsupportedVersion:
        return {}


def running_reassignments(admin: Admin, views: Iterable[TopicView]) -> Mapping[TopicPartition, PartitionReassignment]:
    """Returns the reassignments in progress if a replica of these topics is not in the ISR: without one none lasts.
    Returns nothing where the controller does not tell."""
    if not any(map(has_missing_replicas, (p for view in views for p in view.partitions.values()))):
        return {}
    try:
        return admin.list_partition_reassignments(timeout=CONTROLLER_TIMEOUT_S)
    except BarnabasError:
        return {}


def has_missing_replicas(partition: PartitionView) -> bool:
    """Returns whether a replica is not in the ISR."""
    return len(partition.in_sync_replicas) < len(partition.replicas)


def is_under_replicated(partition: PartitionView, moving: PartitionReassignment = NOT_MOVING) -> bool:
    """Returns whether the ISR is smaller than the number of replicas without those that a reassignment adds, as Kafka
    counts them."""
    added = set(moving.adding_replicas).intersection(partition.replicas)
    return len(partition.in_sync_replicas) < len(partition.replicas) - len(added)


def replica_state(
    partition: PartitionView, leaders: EligibleLeaders, moving: PartitionReassignment = NOT_MOVING
) -> dict[str, Any]:
    """Returns leader, replicas, ISR, ELR, last known leader, offline replicas, and those that a reassignment adds and
    removes, as a command's report has them."""
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.in_sync_replicas),
        "elr": list(leaders.eligible_leader_replicas),
        "last_known_leaders": list(leaders.last_known_leaders),
        "offline_replicas": list(partition.offline_replicas),
        "adding_replicas": list(moving.adding_replicas),
        "removing_replicas": list(moving.removing_replicas),
    }


def replication_counts(
    views: Iterable[TopicView], reassignments: Mapping[TopicPartition, PartitionReassignment]
) -> dict[str, int]:
    """Returns the numbers of partitions, of those that are under-replicated or without a leader, of replicas, and of
    replicas that are in sync."""
    found = {TopicPartition(view.name, p.partition): p for view in views for p in view.partitions.values()}
    partitions = found.values()
    return {
        "partitions": len(partitions),
        "under_replicated": sum(is_under_replicated(p, reassignments.get(tp, NOT_MOVING)) for tp, p in found.items()),
        "without_leader": sum(partition.leader < 0 for partition in partitions),
        "replicas": sum(len(partition.replicas) for partition in partitions),
        "in_sync_replicas": sum(len(partition.in_sync_replicas) for partition in partitions),
    }


def ids_text(node_ids: Sequence[int]) -> str:
    """`1,2,3`, or `-` for none."""
    return ",".join(map(str, node_ids)) or "-"
