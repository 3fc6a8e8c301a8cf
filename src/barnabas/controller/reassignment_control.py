"""Decides about reassignments of partitions to other brokers: pure functions from an image and a request to registry
changes and the result for each partition.

A partition has the replicas of both assignments until those that are added are in sync; the change of the ISR that
makes it so ends the reassignment (`partition_change.py`). Source: KIP-455, KIP-860.
"""

from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from barnabas.controller.partition_change import Assignment, Candidates, LogConfigOf, PartitionChanges
from barnabas.controller.placement import validate_manual_assignment
from barnabas.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.registry.registry import Change, SetPartition
from barnabas.types import BrokerId

__all__ = ["Reassignment", "Reassignments", "alter_reassignments", "drain_plan", "reassigning"]


class Reassignment(NamedTuple):
    """The replicas that a partition is to have; None cancels the reassignment in progress."""

    topic: str
    partition_index: int
    replicas: tuple[BrokerId, ...] | None


class Reassignments(NamedTuple):
    """The changes, and None or an error for each partition."""

    changes: list[Change]
    results: dict[tuple[str, int], KafkaError | None]


def alter_reassignments(
    image: MetadataImage,
    requests: Sequence[Reassignment],
    log_config_of: LogConfigOf,
    *,
    allow_replication_factor_change: bool = True,
    cordoned: Container[BrokerId] = (),
) -> Reassignments:
    """Begins, replaces or cancels reassignments. A partition that is refused does not prevent the others. A broker all
    of whose data directories are `cordoned` gets no replica that it does not have."""
    decide = PartitionChanges(image, log_config_of)
    changes: list[Change] = []
    results: dict[tuple[str, int], KafkaError | None] = {}
    for request in requests:
        key = request.topic, request.partition_index
        if key in results:
            results[key] = InvalidRequest("Duplicate partition.")
            changes = [change for change in changes if not _is_of(change, key)]
            continue
        try:
            change = _alter(decide, request, allow_replication_factor_change, cordoned)
        except KafkaError as error:
            results[key] = error
            continue
        results[key] = None
        if change is not None:
            changes.append(change)
    return Reassignments(changes, results)


def _is_of(change: Change, key: tuple[str, int]) -> bool:
    return isinstance(change, SetPartition) and (change.name, change.partition_index) == key


def _alter(
    decide: PartitionChanges, request: Reassignment, allow_factor_change: bool, cordoned: Container[BrokerId]
) -> SetPartition | None:
    name, number = request.topic, request.partition_index
    topic = decide.image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {name}.")
    partition = decide.image.partition(name, number)
    if partition is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {name}:{number}.")
    if request.replicas is None:
        return _cancel(decide, topic, number, partition)
    validate_manual_assignment(request.replicas, decide.image.brokers, None, cordoned, partition.replicas)
    if not allow_factor_change:
        _check_factor(partition, request.replicas)
    original = _original(partition)
    removing = _without(original, request.replicas)
    assignment = Assignment(
        (*request.replicas, *removing), tuple(sorted(_without(request.replicas, original))), tuple(sorted(removing))
    )
    if assignment == Assignment(partition.replicas, partition.adding_replicas, partition.removing_replicas):
        return None
    change = decide.change(topic, number, assignment=assignment)
    if change is not None and _loses_records(partition, change.partition):
        raise InvalidReplicaAssignment(
            f"Unable to replace the reassignment of {name}:{number} because the replicas that it would give up are the "
            "only ones that are in sync."
        )
    return change


def _cancel(decide: PartitionChanges, topic: TopicImage, number: int, partition: PartitionImage) -> SetPartition | None:
    if not partition.is_reassigning:
        raise NoReassignmentInProgress("No partition reassignment is in progress.")
    is_unclean_allowed = decide.log_config(topic.name).unclean_leader_election_enable
    candidates = Candidates.UNCLEAN if is_unclean_allowed else Candidates.CLEAN
    change = decide.change(topic, number, assignment=Assignment(_original(partition)), candidates=candidates)
    if change is not None and not is_unclean_allowed and _loses_records(partition, change.partition):
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {topic.name}:{number} because it would require an unclean "
            "leader election."
        )
    return change


def _check_factor(partition: PartitionImage, replicas: Sequence[BrokerId]) -> None:
    """Raises InvalidReplicationFactor unless the partition keeps its number of replicas, after a reassignment that is
    in progress."""
    present = len(_without(partition.replicas, partition.removing_replicas))
    if present != len(replicas):
        raise InvalidReplicationFactor(f"The replication factor is changed from {present} to {len(replicas)}")


def _loses_records(before: PartitionImage, after: PartitionImage) -> bool:
    """Returns whether no replica is left that is known to have all committed records."""
    had_all = {*before.isr, *before.elr}
    return bool(had_all) and had_all.isdisjoint((*after.isr, *after.elr))


def _original(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Returns the replicas before the reassignment in progress, which a newer one replaces whole."""
    return _without(partition.replicas, partition.adding_replicas)


def _without(replicas: Sequence[BrokerId], others: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in replicas if replica not in others)


def reassigning(
    image: MetadataImage, wanted: Sequence[tuple[str, Sequence[int]]] | None
) -> dict[str, list[tuple[int, PartitionImage]]]:
    """Returns the partitions of each topic whose reassignment is in progress, by number. None stands for all
    partitions; unknown ones are left out."""
    if wanted is None:
        wanted = [(name, range(len(topic.partitions))) for name, topic in image.topics.items()]
    found: dict[str, dict[int, PartitionImage]] = {}
    for name, numbers in wanted:
        topic = image.topics.get(name)
        for number in numbers if topic is not None else ():
            partition = image.partition(name, number)
            if partition is not None and partition.is_reassigning:
                found.setdefault(name, {})[number] = partition
    return {name: list(partitions.items()) for name, partitions in found.items()}


def drain_plan(image: MetadataImage, node_id: BrokerId) -> list[Reassignment]:
    """Returns the reassignments that leave no replica on a broker. In each partition the live broker with the fewest
    replicas takes its place, in a rack without a replica if there is one. Raises InvalidReplicationFactor where there
    are too few other brokers.

    A partition that is being reassigned keeps the rest of its target.
    """
    others = [broker for broker in image.brokers.values() if broker.node_id != node_id and not broker.fenced]
    replica_counts = Counter(
        replica for topic in image.topics.values() for partition in topic.partitions for replica in partition.replicas
    )
    plan: list[Reassignment] = []
    for name, topic in image.topics.items():
        for number, partition in enumerate(topic.partitions):
            target = _without(partition.replicas, partition.removing_replicas)
            if node_id not in target:
                continue
            free = [broker for broker in others if broker.node_id not in target]
            if not free:
                raise InvalidReplicationFactor(
                    f"{name}-{number} has {len(target)} replicas, and no other live broker can take the one of "
                    f"broker {node_id}"
                )
            kept = _without(target, (node_id,))
            racks = {image.brokers[replica].rack for replica in kept if replica in image.brokers}
            elsewhere = [broker for broker in free if broker.rack not in racks]
            chosen = min(elsewhere or free, key=lambda broker: (replica_counts[broker.node_id], broker.node_id)).node_id
            replica_counts[chosen] += 1
            replicas = tuple(chosen if replica == node_id else replica for replica in target)
            plan.append(Reassignment(name, number, replicas))
    return plan
