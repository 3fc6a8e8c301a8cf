"""Decides the next state of one partition: completes its reassignment, keeps its eligible leader replicas, elects its
leader. Every change of an existing partition goes through `next_state`.

A replica outside of the ISR is eligible (in the ELR) if it has all committed records: it was in the ISR when the ISR
became smaller than min.insync.replicas, and the leader commits nothing from then on until the ISR is large enough
again. Source: KIP-455 (reassignment), KIP-966 (ELR); docs/decisions/0012-eligible-leader-replicas.md.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import NamedTuple

from barnabas.config.log_config import LogConfig
from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from barnabas.metadata.returned import Returned
from barnabas.registry.registry import SetPartition
from barnabas.types import BrokerId, LeaderEpoch

__all__ = ["Assignment", "Brokers", "Candidates", "LogConfigOf", "PartitionChanges", "next_state"]

LogConfigOf = Callable[[str], LogConfig]
"""Returns the settings of a topic's logs."""


class Candidates(Enum):
    """The leaders that may be elected. The leader stays where there is no reason for another."""

    CLEAN = 0
    """One that has all committed records. If all that had them have returned after an unclean stop, the last leader:
    nobody is known to have more."""
    PREFERRED = 1
    """The same, but the preferred leader before the present one."""
    UNCLEAN = 2
    """The same, and if there is none, any replica: records are given up."""


class Brokers(NamedTuple):
    """The brokers, as far as they matter for leaders and ISRs."""

    active: frozenset[BrokerId]
    unclean: frozenset[BrokerId] = frozenset()
    """Fenced ones that have returned after an unclean stop, and may lack records that they had."""
    lost: frozenset[BrokerId] = frozenset()
    """Fenced ones that have returned without their logs."""
    lost_replicas: tuple[tuple[BrokerId, frozenset[str]], ...] = ()
    """Fenced ones that have returned without the logs of these replicas."""

    @classmethod
    def of(cls, image: MetadataImage) -> "Brokers":
        fenced = [(b.node_id, Returned.parse(b.returned)) for b in image.brokers.values() if b.fenced]
        return cls(
            frozenset(broker.node_id for broker in image.brokers.values() if not broker.fenced),
            frozenset(node_id for node_id, returned in fenced if returned.unclean),
            frozenset(node_id for node_id, returned in fenced if returned.lost is None),
            tuple((node_id, returned.lost) for node_id, returned in fenced if returned.lost),
        )

    def for_partition(self, name: str) -> "Brokers":
        """Returns the brokers as they matter for a partition of this name, such as "orders-3"."""
        if not self.lost_replicas:
            return self
        return self._replace(lost=self.lost.union(node_id for node_id, lost in self.lost_replicas if name in lost))


class Assignment(NamedTuple):
    """The replicas of a partition, and those that a reassignment adds and removes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


class PartitionChanges:
    """Makes the changes of partitions upon one image."""

    def __init__(self, image: MetadataImage, log_config_of: LogConfigOf) -> None:
        self.image = image
        self.brokers = Brokers.of(image)
        self._log_config_of = log_config_of
        self._log_configs: dict[str, LogConfig] = {}

    def log_config(self, topic: str) -> LogConfig:
        config = self._log_configs.get(topic)
        if config is None:
            config = self._log_configs[topic] = self._log_config_of(topic)
        return config

    def change(
        self,
        topic: TopicImage,
        index: int,
        *,
        isr: Collection[BrokerId] | None = None,
        assignment: Assignment | None = None,
        candidates: Candidates = Candidates.CLEAN,
        damaged: BrokerId | None = None,
    ) -> SetPartition | None:
        """Returns the change to the partition's `next_state`; None if it stays. A broker whose log is `damaged` counts
        as one that has lost it, and a new leader epoch begins."""
        partition = topic.partitions[index]
        minimum = self.log_config(topic.name).min_insync_replicas
        brokers = self.brokers.for_partition(f"{topic.name}-{index}")
        if damaged is not None:
            brokers = brokers._replace(lost=brokers.lost | {damaged})
        following = next_state(
            *(partition, brokers, minimum),
            isr=isr,
            assignment=assignment,
            candidates=candidates,
            renewed=damaged is not None,
        )
        if following is partition:
            return None
        return SetPartition(topic.name, topic.topic_id, index, following, partition.partition_epoch)


def next_state(
    partition: PartitionImage,
    brokers: Brokers,
    min_insync_replicas: int,
    *,
    isr: Collection[BrokerId] | None = None,
    assignment: Assignment | None = None,
    candidates: Candidates = Candidates.CLEAN,
    renewed: bool = False,
) -> PartitionImage:
    """Returns the state of the partition with another ISR or assignment, with what follows from that and from the
    brokers; the partition itself if nothing changes.

    `isr` may have active brokers only; None stands for the present ISR without those that have to leave it. `renewed`
    begins a new leader epoch, also if the leader stays.
    """
    target = assignment or Assignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)
    if len(target.replicas) == 1:  # no other replica could make up for what this one may lack
        brokers = Brokers(brokers.active)
    members = tuple(
        member
        for member in (partition.isr if isr is None else isr)
        if member in brokers.active and member in target.replicas
    )
    target, members = _completed(target, members)
    elr: tuple[BrokerId, ...] = ()
    # The leader leaves out only those of the replicas that are being added that were not in sync yet. So this is never
    # more than what the leader takes: the ELR has to be empty when the leader commits.
    minimum = min(min_insync_replicas, len(target.replicas) - len(target.adding))
    if len(members) < minimum:
        had_all = {*partition.elr, *partition.isr} - {*members} - brokers.unclean - brokers.lost
        elr = tuple(replica for replica in target.replicas if replica in had_all)
    leader = _leader(partition, target, members, elr, brokers, candidates)
    if leader != NO_LEADER and leader not in members:
        elr = tuple(replica for replica in elr if replica != leader) if leader in elr and minimum > 1 else ()
        target, members = _completed(target, (leader,))
        elr = tuple(replica for replica in elr if replica in target.replicas)
    bumped = renewed or leader != partition.leader or not set(partition.replicas) <= set(target.replicas)
    following = PartitionImage(
        leader,
        LeaderEpoch(partition.leader_epoch + bumped),
        target.replicas,
        members,
        partition.partition_epoch,
        target.adding,
        target.removing,
        elr,
        _last_leader(partition, target, brokers) if leader == NO_LEADER else (),
    )
    return partition if following == partition else following._replace(partition_epoch=partition.partition_epoch + 1)


def _completed(target: Assignment, members: tuple[BrokerId, ...]) -> tuple[Assignment, tuple[BrokerId, ...]]:
    """Returns assignment and ISR after the reassignment, if all replicas that it adds are in sync.

    The ISR does not get smaller by it, and a replica that stays, on a dead broker perhaps, does not hold it up. If
    fewer are added than removed, the ISR might, and all replicas of the target have to be in sync.
    """
    if not target.adding and not target.removing:
        return target, members
    replicas = _without(target.replicas, target.removing)
    needed = target.adding if len(target.adding) >= len(target.removing) else replicas
    if not set(needed) <= set(members):
        return target, members
    return Assignment(replicas), _without(members, target.removing)


def _leader(
    partition: PartitionImage,
    target: Assignment,
    members: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    brokers: Brokers,
    candidates: Candidates,
) -> BrokerId:
    alive = [replica for replica in target.replicas if replica in brokers.active]
    eligible = [replica for replica in alive if replica in (members or elr)]
    if candidates is Candidates.PREFERRED and target.replicas[0] in eligible:
        return target.replicas[0]
    if partition.leader in eligible:
        return partition.leader
    if eligible:
        return eligible[0]
    last = [replica for replica in _last_leader(partition, target, brokers) if replica in alive]
    if last and (not elr or candidates is Candidates.UNCLEAN):
        return last[0]
    if candidates is not Candidates.UNCLEAN or not alive:
        return NO_LEADER
    return min(alive, key=lambda replica: replica in target.adding)  # one that is being added may have nothing


def _last_leader(partition: PartitionImage, target: Assignment, brokers: Brokers) -> tuple[BrokerId, ...]:
    last = partition.last_known_elr if partition.leader == NO_LEADER else (partition.leader,)
    return tuple(replica for replica in last if replica in target.replicas and replica not in brokers.lost)


def _without(replicas: Iterable[BrokerId], others: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in replicas if replica not in others)
