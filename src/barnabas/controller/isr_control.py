"""Decides about the in-sync replicas that leaders propose: pure functions from an image and a request to changes of the
registry and the result for each partition.

Source: KIP-497 (leaders propose, the controller decides), KIP-841 (no fenced replica joins), KIP-903 (no replica joins
by an earlier registration of its broker).
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from barnabas.controller.partition_change import LogConfigOf, PartitionChanges
from barnabas.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.registry.registry import Change
from barnabas.replication.replica import NO_BROKER_EPOCH, BrokerState
from barnabas.types import BrokerId, LeaderEpoch

__all__ = ["GivenUpReplica", "IsrChanges", "IsrRequest", "alter_partitions", "give_up_replicas"]


class IsrRequest(NamedTuple):
    """The ISR that a leader proposes for a partition, in the epochs that the leader knows."""

    topic_id: UUID
    partition_index: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    new_isr: tuple[BrokerState, ...]


class GivenUpReplica(NamedTuple):
    """A replica that its broker cannot write, in the leader epoch that the broker knows."""

    topic_id: UUID
    partition_index: int
    leader_epoch: LeaderEpoch
    is_damaged: bool = False
    """Whether its log lacks records, or cannot read some."""


class IsrChanges(NamedTuple):
    """The result of a request: the changes, and for each partition its new state or an error, in the request's
    order."""

    changes: list[Change]
    results: list[tuple[IsrRequest, PartitionImage | KafkaError]]


def alter_partitions(
    image: MetadataImage,
    broker_id: BrokerId,
    broker_epoch: int,
    requests: Sequence[IsrRequest],
    log_config_of: LogConfigOf,
) -> IsrChanges:
    """Accepts or refuses the proposals of a broker. Raises StaleBrokerEpoch for a broker that is not registered, or not
    in this epoch.

    An accepted change may complete a reassignment. If that takes the leadership away or begins a new leader epoch, the
    result is NewLeaderElected, and the leader learns the rest from the metadata.
    """
    _check_broker(image, broker_id, broker_epoch)
    changes: list[Change] = []
    results: list[tuple[IsrRequest, PartitionImage | KafkaError]] = []
    decided: set[tuple[UUID, int]] = set()
    decide = PartitionChanges(image, log_config_of)
    for request in requests:
        key = request.topic_id, request.partition_index
        try:
            if key in decided:
                raise InvalidRequest("Duplicate partition.")
            decided.add(key)
            topic, partition = _find(image, request)
            _check(image, broker_id, partition, request)
        except KafkaError as error:
            results.append((request, error))
            continue
        change = decide.change(topic, request.partition_index, isr=[node_id for node_id, _ in request.new_isr])
        altered = partition if change is None else change.partition
        if change is not None:
            changes.append(change)
        if altered.leader_epoch != partition.leader_epoch:
            message = f"the reassignment is complete: broker {altered.leader} leads in a new leader epoch"
            results.append((request, NewLeaderElected(message)))
        else:
            results.append((request, altered))
    return IsrChanges(changes, results)


def give_up_replicas(
    image: MetadataImage,
    broker_id: BrokerId,
    broker_epoch: int,
    replicas: Sequence[GivenUpReplica],
    log_config_of: LogConfigOf,
) -> list[Change]:
    """Takes the broker out of the ISRs of replicas that it cannot write, where others are left: one of these leads
    then. Replicas in another leader epoch are left out. Raises StaleBrokerEpoch.

    A replica that is damaged is not eligible any more, and always begins a new leader epoch: what it has fetched before
    counts no longer, so that it can go on with an empty log.
    """
    _check_broker(image, broker_id, broker_epoch)
    decide = PartitionChanges(image, log_config_of)
    changes: list[Change] = []
    for topic_id, index, leader_epoch, is_damaged in dict.fromkeys(replicas):
        topic = image.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        others = [member for member in partition.isr if member != broker_id]
        is_member = len(others) < len(partition.isr)
        if partition.leader_epoch == leader_epoch and others and (is_member or is_damaged):
            change = decide.change(topic, index, isr=others, damaged=broker_id if is_damaged else None)
            if change is not None:
                changes.append(change)
    return changes


def _check_broker(image: MetadataImage, broker_id: BrokerId, broker_epoch: int) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        known = "it is not registered" if broker is None else f"its epoch is {broker.epoch}"
        raise StaleBrokerEpoch(f"broker {broker_id} has sent the broker epoch {broker_epoch}, but {known}")


def _find(image: MetadataImage, request: IsrRequest) -> tuple[TopicImage, PartitionImage]:
    topic = image.topic_by_id(request.topic_id)
    if topic is None:
        raise UnknownTopicId(f"no topic has the id {request.topic_id}")
    if not 0 <= request.partition_index < len(topic.partitions):
        raise UnknownTopicOrPartition(f"{topic.name} has no partition {request.partition_index}")
    return topic, topic.partitions[request.partition_index]


def _check(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage, request: IsrRequest) -> None:
    """Raises the error of a proposal that is refused."""
    if request.leader_epoch > partition.leader_epoch or request.partition_epoch > partition.partition_epoch:
        raise NotController("the leader knows newer metadata than this controller, which has been replaced")
    if request.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"the partition is in leader epoch {partition.leader_epoch}")
    if broker_id != partition.leader:
        raise InvalidRequest(f"broker {broker_id} does not lead the partition, broker {partition.leader} does")
    if request.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(f"the partition is in partition epoch {partition.partition_epoch}")
    members = [node_id for node_id, _ in request.new_isr]
    if broker_id not in members or len(set(members)) < len(members) or not set(members) <= set(partition.replicas):
        raise InvalidRequest(
            f"the ISR {members} must have the leader {broker_id}, and only replicas, {list(partition.replicas)}, each"
            " once"
        )
    for node_id, epoch in request.new_isr:
        broker = image.brokers.get(node_id)
        if broker is None or broker.fenced:
            raise IneligibleReplica(f"broker {node_id} is not live: it is {'fenced' if broker else 'not registered'}")
        if epoch == NO_BROKER_EPOCH and node_id not in partition.isr:
            raise IneligibleReplica(f"broker {node_id} joins without the epoch in which it has fetched")
        if epoch not in (NO_BROKER_EPOCH, broker.epoch):
            raise IneligibleReplica(f"broker {node_id} has registered again since: its epoch is {broker.epoch}")
