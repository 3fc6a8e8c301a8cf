"""`barnabas cluster under-replicated`: the partitions whose ISR is not full."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from barnabas import Admin
from barnabas.cli.framework.output import table
from barnabas.cli.framework.replication import (
    NOT_MOVING,
    eligible_leaders,
    has_missing_replicas,
    ids_text,
    is_under_replicated,
    replica_state,
)
from barnabas.cli.framework.resources import chosen_topics
from barnabas.client.admin.configs import ConfigResource
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.client.admin.topics import EligibleLeaders
from barnabas.client.errors import ItemsFailed
from barnabas.connection.cluster import PartitionView, TopicView
from barnabas.types import TopicPartition

__all__ = [
    "min_in_sync",
    "under_replicated_partitions",
    "under_replicated_rows",
    "under_replicated_text",
    "with_missing_replicas",
]

MIN_ISR = "min.insync.replicas"


def under_replicated_partitions(admin: Admin, topics: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for each under-replicated partition of these topics and patterns; without any, of all topics."""
    views = with_missing_replicas(chosen_topics(admin, topics) if topics else admin.list_topics(internal=True))
    reassignments = admin.list_partition_reassignments() if views else {}
    views = _selected(views, lambda tp, p: is_under_replicated(p, reassignments.get(tp, NOT_MOVING)))
    minimums = min_in_sync(admin, [view.name for view in views])
    return under_replicated_rows(views, eligible_leaders(admin, views), minimums, reassignments)


def with_missing_replicas(views: Iterable[TopicView]) -> list[TopicView]:
    """Returns the topics with those of their partitions that have a replica which is not in the ISR."""
    return _selected(views, lambda _, partition: has_missing_replicas(partition))


def _selected(
    views: Iterable[TopicView], is_selected: Callable[[TopicPartition, PartitionView], bool]
) -> list[TopicView]:
    """Returns the topics that have such partitions, with these alone."""
    selected = [
        view._replace(
            partitions={n: p for n, p in view.partitions.items() if is_selected(TopicPartition(view.name, n), p)}
        )
        for view in views
    ]
    return [view for view in selected if view.partitions]


def under_replicated_rows(
    views: Iterable[TopicView],
    leaders: Mapping[TopicPartition, EligibleLeaders],
    minimums: Mapping[str, int],
    reassignments: Mapping[TopicPartition, PartitionReassignment],
) -> list[dict[str, Any]]:
    """Returns a row for each partition of these topics. What the brokers have not told is unknown there."""
    rows = []
    for view in views:
        minimum = minimums.get(view.name)
        for partition in view.in_order():
            tp = TopicPartition(view.name, partition.partition)
            moving = reassignments.get(tp, NOT_MOVING)
            state = replica_state(partition, leaders.get(tp, EligibleLeaders()), moving)
            added = set(moving.adding_replicas).intersection(partition.replicas) - set(partition.in_sync_replicas)
            needed = None if minimum is None else min(minimum, len(partition.replicas) - len(added))
            accepts = None if needed is None else partition.leader >= 0 and len(state["isr"]) >= needed
            rows.append({**tp._asdict(), **state, "min_in_sync_replicas": needed, "accepts_acks_all": accepts})
    return rows


def min_in_sync(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    """Returns min.insync.replicas of topics; a topic is left out if the brokers do not tell."""
    if not topics:
        return {}
    try:
        found = admin.describe_configs([ConfigResource("topic", name) for name in topics])
    except ItemsFailed as error:
        found = dict(error.succeeded)
    return {
        resource.name: int(configs[MIN_ISR].value or 0) for resource, configs in found.items() if MIN_ISR in configs
    }


def under_replicated_text(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "every replica is in sync"
    headers = ("topic", "partition", "leader", "replicas", "isr", "elr", "offline", "acks=all")
    cells = [
        (
            row["topic"],
            row["partition"],
            row["leader"] if row["leader"] >= 0 else "none",
            *(ids_text(row[name]) for name in ("replicas", "isr", "elr", "offline_replicas")),
            {True: "accepted", False: "refused", None: None}[row["accepts_acks_all"]],
        )
        for row in rows
    ]
    return table(headers, cells)
