"""Brings members and partitions of one rack together (KIP-881), without a change to how evenly partitions are shared.

A member is near to a partition if a replica is in its rack. A member that names no rack is near to all partitions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from barnabas.client.consumer.assignors.members import Assignments, Member, ReplicaRacks
from barnabas.connection.cluster import ClusterView
from barnabas.types import TopicPartition

__all__ = ["far_from_owners", "moved_to_other_racks", "nearer", "racks_matter", "racks_of", "replica_racks"]

_NOWHERE: Final = frozenset[str]()

_Kind: TypeAlias = tuple[str, frozenset[str]]
"""A topic and the racks of replicas: it makes no difference which partition of a kind a member has."""

_Step: TypeAlias = tuple[str, _Kind | None]
"""A member and what it gives to the next; None if it only takes a partition, and the next only gives one."""


def replica_racks(cluster: ClusterView, topics: Iterable[str]) -> ReplicaRacks:
    """Returns the racks of the topics' replicas, in sync or not, as far as their brokers are known."""
    rack_of = {node_id: broker.rack for node_id, broker in cluster.brokers.items() if broker.rack}
    if not rack_of:
        return {}
    return {
        name: [
            frozenset(rack_of[node_id] for node_id in partition.replicas if node_id in rack_of)
            for partition in cluster.topics[name].in_order()
        ]
        for name in topics
        if name in cluster.topics
    }


def moved_to_other_racks(cluster: ClusterView, racks: ReplicaRacks) -> TopicPartition | None:
    """Returns a partition whose replicas are in other racks than they were. A broker that is away tells no rack: its
    partitions count again when it is back."""
    for topic, now in replica_racks(cluster, racks).items():
        for number, (before, after) in enumerate(zip(racks[topic], now, strict=False)):
            if before != after and cluster.brokers.keys() >= set(cluster.topics[topic].partitions[number].replicas):
                return TopicPartition(topic, number)
    return None


def racks_of(topic: str, count: int, racks: ReplicaRacks) -> list[frozenset[str]]:
    """Returns the racks of each partition of a topic, also of one about which nothing is known."""
    return [_racks_at(racks, topic, index) for index in range(count)]


def racks_matter(members: Iterable[Member], partitions: Iterable[frozenset[str]]) -> bool:
    """Whether a rack of members has replicas at all, and partitions differ in their racks."""
    different = set(partitions)
    return len(different) > 1 and not _NOWHERE.union(*different).isdisjoint(
        member.rack for member in members if member.rack
    )


def far_from_owners(
    owners: Mapping[TopicPartition, str], members: Iterable[Member], racks: ReplicaRacks
) -> set[TopicPartition]:
    """Returns the partitions without a replica in their owner's rack."""
    rack_of = {member.member_id: member.rack for member in members if member.rack}
    return {
        each
        for each, owner in owners.items()
        if owner in rack_of and rack_of[owner] not in _racks_at(racks, each.topic, each.partition)
    }


def _racks_at(racks: ReplicaRacks, topic: str, index: int) -> frozenset[str]:
    known = racks.get(topic, ())
    return known[index] if index < len(known) else _NOWHERE


def nearer(
    assignments: Assignments,
    members: Sequence[Member],
    subscribers: Mapping[str, Sequence[Member]],
    racks: ReplicaRacks,
    owners: Mapping[TopicPartition, str],
) -> Assignments:
    """Returns an assignment in which fewer partitions are far from their members.

    Members exchange partitions in rings. A ring may be cut where one member has a partition fewer than another: it
    takes one and gives none, the other gives one and takes none. So as many members as before have as many partitions.
    Partitions that their owners have stay, unless it takes them to bring one more partition near.
    """
    for staying in (owners, {}):
        exchange = _Exchange(assignments, members, subscribers, racks, owners)
        exchange.collect(staying)
        while exchange.improve():
            pass
        assignments = exchange.assignments
    return assignments


class _Exchange:
    """The partitions that may move, and all members' loads."""

    def __init__(
        self,
        assignments: Assignments,
        members: Sequence[Member],
        subscribers: Mapping[str, Sequence[Member]],
        racks: ReplicaRacks,
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self._before = assignments
        self._rack_of = {member.member_id: member.rack for member in members}
        self._subscribers = {topic: [member.member_id for member in wanting] for topic, wanting in subscribers.items()}
        self._near_subscribers: dict[_Kind, list[str]] = {}
        self._racks = racks
        self._owners = owners
        self._load = {name: len(share) for name, share in assignments.items()}
        self._staying: Assignments = {name: [] for name in assignments}
        self._held: dict[str, dict[_Kind, list[int]]] = {name: {} for name in assignments}

    def collect(self, staying: Mapping[TopicPartition, str]) -> None:
        """Takes up all partitions but those in `staying` that are with their owners."""
        for name, share in self._before.items():
            for topic_partition in sorted(share):
                if staying.get(topic_partition) == name:
                    self._staying[name].append(topic_partition)
                    continue
                topic, index = topic_partition
                kind = (topic, _racks_at(self._racks, topic, index))
                self._held[name].setdefault(kind, []).append(index)

    @property
    def assignments(self) -> Assignments:
        return {
            name: self._staying[name]
            + [TopicPartition(topic, index) for (topic, _), indexes in held.items() for index in indexes]
            for name, held in self._held.items()
        }

    def improve(self) -> bool:
        """Brings far partitions near where it can. Returns whether it could at all.

        A search that has failed has reached members that lead back to none outside, so the searches of others pass over
        them.
        """
        improved = False
        dead: set[str] = set()
        for start in sorted(self._load, key=lambda name: (-self._load[name], name)):
            for kind in [kind for kind in self._held[start] if not self._is_near(start, kind)]:
                while self._held[start][kind]:
                    before = self._search(start, kind, set() if start in dead else dead)
                    if start not in before:
                        dead |= before.keys()
                        break
                    self._move_around(before, start)
                    improved = True
                    if start in dead:
                        dead = set()
        return improved

    def _search(self, start: str, kind: _Kind, dead: set[str]) -> dict[str, _Step]:
        """Returns the step to each member that a partition of the kind sets giving, as far as nothing near becomes far;
        the first member is among them if a ring is closed."""
        before: dict[str, _Step] = {name: (start, kind) for name in self._takers_near(kind) if name not in dead}
        seen: set[tuple[_Kind, bool]] = set()
        seen_loads: set[int] = set()

        def reach(others: Iterable[str], step: _Step) -> list[str]:
            new = [other for other in others if other not in before and other not in dead]
            before.update(dict.fromkeys(new, step))
            return new

        ring = list(before)
        while ring:
            following: list[str] = []
            for name in ring:
                if self._load[name] + 1 == self._load[start]:
                    before[start] = (name, None)
                    return before
            for near in (False, True):  # what is far may become near as well
                for name in ring:
                    for given, indexes in self._held[name].items():
                        if not indexes or self._is_near(name, given) != near or (given, near) in seen:
                            continue
                        seen.add((given, near))
                        takers = self._takers_near(given) if near else self._subscribers[given[0]]
                        following += reach(takers, (name, given))
                        if start in before:
                            return before
            for name in ring:
                load = self._load[name]
                if load not in seen_loads:
                    seen_loads.add(load)
                    fuller = (other for other, its in self._load.items() if its == load + 1)
                    following += reach(fuller, (name, None))
            ring = following
        return before

    def _is_near(self, name: str, kind: _Kind) -> bool:
        rack = self._rack_of[name]
        return not rack or rack in kind[1]

    def _takers_near(self, kind: _Kind) -> list[str]:
        found = self._near_subscribers.get(kind)
        if found is None:
            found = [name for name in self._subscribers[kind[0]] if self._is_near(name, kind)]
            self._near_subscribers[kind] = found
        return found

    def _move_around(self, before: Mapping[str, _Step], start: str) -> None:
        taker = start
        while True:
            giver, kind = before[taker]
            if kind is None:
                self._load[giver] += 1
                self._load[taker] -= 1
            else:
                self._move(giver, taker, kind)
            if giver == start:
                break
            taker = giver

    def _move(self, giver: str, taker: str, kind: _Kind) -> None:
        """Moves one partition of the kind: best one that the taker owned, then one that the giver did not own."""

        def regret(index: int) -> int:
            owner = self._owners.get(TopicPartition(kind[0], index))
            return 0 if owner == taker else 2 if owner == giver else 1

        indexes = self._held[giver][kind]
        index = min(reversed(indexes), key=regret)
        indexes.remove(index)
        self._held[taker].setdefault(kind, []).append(index)
