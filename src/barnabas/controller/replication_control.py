"""Decides about topics, partitions and leaders: pure functions from an image and a request to registry changes and the
result of each part of the request. No I/O, no clock, no randomness of its own.

Where we differ from Kafka: internal topics get no further partitions. Their number says which of them has the records
of a group or a transactional id, so all committed offsets would seem to be lost, and open transactions would stay open.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import validate_topic_overrides
from barnabas.controller.partition_change import Candidates, LogConfigOf, PartitionChanges
from barnabas.controller.placement import Randomness, StripedReplicaPlacer, validate_manual_assignment
from barnabas.controller.requests import USE_DEFAULT, ElectionType, PartitionsRequest, TopicRequest
from barnabas.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    PreferredLeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from barnabas.metadata.topic_names import has_collision_characters, unify_collision_characters, validate_topic_name
from barnabas.registry.registry import AddPartitions, Change, CreateTopic, DeleteTopic, SetPartition
from barnabas.types import BrokerId, LeaderEpoch

__all__ = [
    "ELECTIONS_PER_BALANCE",
    "MAX_PARTITIONS_PER_REQUEST",
    "Election",
    "Topics",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "elect_leaders",
    "leaders_after_brokers_changed",
    "moved_leader",
    "preferred_leaders",
    "renewed_leaders",
]

ELECTIONS_PER_BALANCE: Final = 1000
"""The most elections that restore preferred leaders at once, as in Kafka."""
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Kafka's bound on the records of one user's operation."""

_TOO_MANY: Final = "Excessively large number of partitions per request."
_METADATA_TOPIC: Final = "__cluster_metadata"


class Topics(NamedTuple):
    """The result of creating topics: the changes, and for each name the topic or an error."""

    changes: list[Change]
    results: dict[str, TopicImage | KafkaError]


class Election(NamedTuple):
    """The result of an election: the changes, and for each partition None or an error."""

    changes: list[Change]
    results: dict[tuple[str, int], KafkaError | None]


# -- topics ------------------------------------------------------------------------------------------------------------


def create_topics(
    image: MetadataImage,
    requests: Sequence[TopicRequest],
    config: BrokerConfig,
    randomness: Randomness,
    new_id: Callable[[], UUID],
    cordoned: Container[BrokerId] = (),
) -> Topics:
    """Creates topics. A request that is refused does not prevent the others."""
    named = Counter(request.name for request in requests)
    changes: list[Change] = []
    results: dict[str, TopicImage | KafkaError] = {}
    collisions = dict(image.collisions)
    budget = MAX_PARTITIONS_PER_REQUEST
    for request in requests:
        name = request.name
        if named[name] > 1:
            results[name] = InvalidRequest("Duplicate topic name.")
            continue
        try:
            _check_new_name(image, name, collisions)
            overrides = _creation_configs(request, config)
            partitions = _new_partitions(image, request, config, randomness, budget, cordoned)
        except KafkaError as error:
            results[name] = error
            continue
        budget -= len(partitions)
        if has_collision_characters(name):
            collisions[unify_collision_characters(name)] = name
        topic = TopicImage(name, new_id(), partitions)
        results[name] = topic
        changes.append(CreateTopic(name, topic.topic_id, partitions, overrides))
    return Topics(changes, results)


def _check_new_name(image: MetadataImage, name: str, collisions: Mapping[str, str]) -> None:
    if name in image.topics:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    if name == _METADATA_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {_METADATA_TOPIC} is prohibited.")
    validate_topic_name(name)
    if has_collision_characters(name):
        other = collisions.get(unify_collision_characters(name))
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")


def _creation_configs(request: TopicRequest, config: BrokerConfig) -> dict[str, str]:
    unset = [name for name, value in request.configs.items() if value is None]
    if unset:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(unset)}")
    overrides = {name: value for name, value in request.configs.items() if value is not None}
    if overrides:
        validate_topic_overrides(overrides, config.topic_defaults)
    return overrides


def _new_partitions(
    image: MetadataImage,
    request: TopicRequest,
    config: BrokerConfig,
    randomness: Randomness,
    budget: int,
    cordoned: Container[BrokerId],
) -> tuple[PartitionImage, ...]:
    if request.assignments:
        if len(request.assignments) > budget:
            raise PolicyViolation(_TOO_MANY)
        return _assigned_partitions(image, request, cordoned)
    factor, count = request.replication_factor, request.partitions
    if factor < USE_DEFAULT or factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if count < USE_DEFAULT or count == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    factor = config.default_replication_factor if factor == USE_DEFAULT else factor
    count = config.num_partitions if count == USE_DEFAULT else count
    if count > budget:
        raise PolicyViolation(_TOO_MANY)
    try:
        placed = StripedReplicaPlacer(image.brokers.values(), randomness, cordoned).place(count, factor)
    except InvalidReplicationFactor as error:
        raise InvalidReplicationFactor(f"Unable to replicate the partition {factor} time(s): {error.message}") from None
    return tuple(_partition(image, replicas) for replicas in placed)


def _assigned_partitions(
    image: MetadataImage, request: TopicRequest, cordoned: Container[BrokerId]
) -> tuple[PartitionImage, ...]:
    if request.replication_factor != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if request.partitions != USE_DEFAULT:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    by_number: dict[int, PartitionImage] = {}
    factor: int | None = None
    for number, replicas in request.assignments:
        if number in by_number:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {number}")
        validate_manual_assignment(replicas, image.brokers, factor, cordoned)
        factor = len(replicas)
        by_number[number] = _manual_partition(image, number, [BrokerId(replica) for replica in replicas])
    if sorted(by_number) != list(range(len(by_number))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return tuple(by_number[number] for number in range(len(by_number)))


def _manual_partition(image: MetadataImage, number: int, replicas: Sequence[BrokerId]) -> PartitionImage:
    if not any(image.is_active(node_id) for node_id in replicas):
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {number} "
            "are fenced or in controlled shutdown."
        )
    return _partition(image, tuple(replicas))


def _partition(image: MetadataImage, replicas: tuple[BrokerId, ...]) -> PartitionImage:
    isr = tuple(node_id for node_id in replicas if image.is_active(node_id))
    return PartitionImage(leader=isr[0], leader_epoch=LeaderEpoch(0), replicas=replicas, isr=isr, partition_epoch=0)


def delete_topics(
    image: MetadataImage, topics: Iterable[str | UUID]
) -> tuple[list[Change], dict[str | UUID, KafkaError | None]]:
    changes: list[Change] = []
    results: dict[str | UUID, KafkaError | None] = {}
    for wanted in topics:
        topic = image.topics.get(wanted) if isinstance(wanted, str) else image.topic_by_id(wanted)
        if topic is not None:
            if wanted not in results:
                changes.append(DeleteTopic(topic.name, topic.topic_id))
            results[wanted] = None
        elif isinstance(wanted, str):
            results[wanted] = UnknownTopicOrPartition("This server does not host this topic-partition.")
        else:
            results[wanted] = UnknownTopicId("This server does not host this topic ID.")
    return changes, results


# -- partitions --------------------------------------------------------------------------------------------------------


def create_partitions(
    image: MetadataImage,
    requests: Sequence[PartitionsRequest],
    randomness: Randomness,
    cordoned: Container[BrokerId] = (),
) -> tuple[list[Change], dict[str, KafkaError | None]]:
    """Adds partitions to existing topics."""
    named = Counter(request.name for request in requests)
    changes: list[Change] = []
    results: dict[str, KafkaError | None] = {}
    budget = MAX_PARTITIONS_PER_REQUEST
    for request in requests:
        if named[request.name] > 1:
            results[request.name] = InvalidRequest("Duplicate topic name.")
            continue
        try:
            change = _more_partitions(image, request, randomness, budget, cordoned)
        except KafkaError as error:
            results[request.name] = error
            continue
        budget -= len(change.partitions)
        changes.append(change)
        results[request.name] = None
    return changes, results


def _more_partitions(
    image: MetadataImage,
    request: PartitionsRequest,
    randomness: Randomness,
    budget: int,
    cordoned: Container[BrokerId],
) -> AddPartitions:
    topic = image.topics.get(request.name)
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    present = len(topic.partitions)
    if topic.is_internal:
        raise InvalidPartitions(
            f"The internal topic {topic.name} keeps its {present} partition(s): by their number brokers find the group "
            "or transactional id in them. offsets.topic.num.partitions and transaction.state.log.num.partitions count "
            "when such a topic is created."
        )
    if request.total == present:
        raise InvalidPartitions(f"Topic already has {present} partition(s).")
    if request.total < present:
        raise InvalidPartitions(
            f"The topic {request.name} currently has {present} partition(s); {request.total} would not be an increase."
        )
    additional = request.total - present
    if request.assignments is not None and len(request.assignments) != additional:
        raise InvalidReplicaAssignment(
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)} "
            "assignment(s) were specified."
        )
    if additional > budget:
        raise PolicyViolation(_TOO_MANY)
    factor = topic.replication_factor
    if request.assignments is not None:
        added = []
        for number, replicas in enumerate(request.assignments, present):
            validate_manual_assignment(replicas, image.brokers, factor, cordoned)
            added.append(_manual_partition(image, number, [BrokerId(replica) for replica in replicas]))
    else:
        placed = StripedReplicaPlacer(image.brokers.values(), randomness, cordoned).place(additional, factor)
        added = [_partition(image, replicas) for replicas in placed]
    return AddPartitions(topic.name, topic.topic_id, present, tuple(added))


# -- leaders -----------------------------------------------------------------------------------------------------------


def elect_leaders(
    image: MetadataImage, election_type: int, partitions: Sequence[tuple[str, int]] | None, log_config_of: LogConfigOf
) -> Election:
    """Elects preferred leaders, or any leaders (unclean). None means every partition; then those that need no election
    are left out. Raises InvalidRequest for an unknown type of election."""
    if election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise InvalidRequest(f"Unknown election type {election_type}")
    wanted = partitions
    if wanted is None:
        wanted = [(name, number) for name, topic in image.topics.items() for number in range(len(topic.partitions))]
    changes: list[Change] = []
    results: dict[tuple[str, int], KafkaError | None] = {}
    decide = PartitionChanges(image, log_config_of)
    for name, number in wanted:
        try:
            change = _elect_one(decide, name, number, unclean=election_type == ElectionType.UNCLEAN)
        except ElectionNotNeeded as error:
            if partitions is not None:
                results[name, number] = error
        except KafkaError as error:
            results[name, number] = error
        else:
            if (name, number) not in results:
                changes.append(change)
            results[name, number] = None
    return Election(changes, results)


def _elect_one(decide: PartitionChanges, name: str, number: int, *, unclean: bool) -> SetPartition:
    image = decide.image
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {name}")
    partition = image.partition(name, number)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {name}-{number}")
    if partition.leader == partition.preferred_leader or (unclean and partition.leader != NO_LEADER):
        raise ElectionNotNeeded("Leader election not needed for topic partition.")
    candidates = Candidates.UNCLEAN if unclean else Candidates.PREFERRED
    change = decide.change(topic, number, candidates=candidates)
    if unclean and (change is None or change.partition.leader == NO_LEADER):
        raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
    if change is None or (not unclean and change.partition.leader != partition.preferred_leader):
        raise PreferredLeaderNotAvailable("The preferred leader was not available.")
    return change


def moved_leader(image: MetadataImage, name: str, number: int, leader: BrokerId) -> SetPartition:
    """Returns the change with which another in-sync replica leads a partition. Raises UnknownTopicOrPartition,
    EligibleLeadersNotAvailable."""
    partition = image.partition(name, number)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {name}-{number}")
    if leader == partition.leader or leader not in partition.isr or not image.is_active(leader):
        raise EligibleLeadersNotAvailable(f"broker {leader} is no in-sync follower of {name}-{number}: {partition}")
    moved = partition._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
    )
    return SetPartition(name, image.topics[name].topic_id, number, moved, partition.partition_epoch)


def preferred_leaders(image: MetadataImage, log_config_of: LogConfigOf) -> list[Change]:
    """Returns the changes that let preferred leaders lead where they are in sync and another broker leads, at most
    ELECTIONS_PER_BALANCE."""
    decide = PartitionChanges(image, log_config_of)
    changes: list[Change] = []
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            if (
                partition.leader == preferred
                or preferred not in partition.isr
                or preferred not in decide.brokers.active
            ):
                continue
            change = decide.change(topic, number, candidates=Candidates.PREFERRED)
            if change is not None:
                changes.append(change)
            if len(changes) == ELECTIONS_PER_BALANCE:
                return changes
    return changes


def leaders_after_brokers_changed(image: MetadataImage, log_config_of: LogConfigOf) -> list[Change]:
    """Returns the leader and ISR changes that the current set of live brokers requires.

    A broker that is not active leaves the ISR, so that it does not hold up acks=all. A partition whose leader is gone
    gets another from its ISR, or none. A partition without leader gets one as soon as an eligible replica is back. A
    fenced broker that has returned after an unclean stop or without its logs is not eligible any more. Where
    unclean.leader.election.enable allows it, records are given up for a leader. A reassignment ends if it can: a
    release before this one may have waited for more.
    """
    decide = PartitionChanges(image, log_config_of)
    active = decide.brokers.active
    changes: list[Change] = []
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            settled = not partition.elr and partition.leader in active and active.issuperset(partition.isr)
            if settled and not partition.is_reassigning:
                continue
            is_unclean_allowed = decide.log_config(topic.name).unclean_leader_election_enable
            candidates = Candidates.UNCLEAN if is_unclean_allowed else Candidates.CLEAN
            change = decide.change(topic, number, candidates=candidates)
            if change is not None:
                changes.append(change)
    return changes


def renewed_leaders(image: MetadataImage, node_id: BrokerId, partitions: Iterable[tuple[str, int]]) -> list[Change]:
    """Returns the changes that give the partitions that are on this broker alone a new leader epoch with this leader,
    because their logs are lost. Where there are other replicas, one of these has to lead."""
    changes: list[Change] = []
    for name, number in partitions:
        partition = image.partition(name, number)
        if partition is not None and partition.replicas == (node_id,):
            renewed = partition._replace(
                leader=node_id,
                isr=(node_id,),
                leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
                partition_epoch=partition.partition_epoch + 1,
                elr=(),
                last_known_elr=(),
            )
            topic_id = image.topics[name].topic_id
            changes.append(SetPartition(name, topic_id, number, renewed, partition.partition_epoch))
    return changes
