"""Range and round robin: assignments that do not depend on the previous one."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from barnabas.client.consumer.assignors.members import (
    Assignments,
    LastAssignment,
    Member,
    ReplicaRacks,
    subscribers_of,
)
from barnabas.client.consumer.assignors.racks import racks_matter, racks_of
from barnabas.types import TopicPartition

__all__ = ["RangeAssignor", "RoundRobinAssignor"]


class RangeAssignor:
    """Gives each member one run of each topic's partitions, the first members one more.

    Seven partitions for a, b, c: a has 0 to 2, b 3 and 4, c 5 and 6. Topics with as many partitions and the same
    subscribers are divided alike, so that equal keys of both come to one member.

    Where racks matter, members first get partitions with replicas in their rack, as many as without racks, and runs of
    what is left. Of topics that are divided alike, a number counts as near if it is near in each of them.
    """

    name = "range"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        return self.assign_near(members, partition_counts, {})

    def assign_near(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], racks: ReplicaRacks
    ) -> Assignments:
        assignments: Assignments = {member.member_id: [] for member in members}
        subscribers = subscribers_of(members, partition_counts)
        partition_racks = {topic: racks_of(topic, partition_counts[topic], racks) for topic in subscribers}
        matter = {topic for topic, wanting in subscribers.items() if racks_matter(wanting, partition_racks[topic])}
        alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        for topic, wanting in subscribers.items():
            names = tuple(member.member_id for member in wanting)
            alike.setdefault((partition_counts[topic], names), []).append(topic)
        for (count, _), topics in alike.items():
            ranges = _Ranges(count, subscribers[topics[0]])
            if matter and len(topics) > 1:
                ranges.take_by_number(
                    [frozenset.intersection(*each) for each in zip(*map(partition_racks.get, topics))]
                )
            elif matter.issuperset(topics):
                ranges.take_by_member(partition_racks[topics[0]])
            ranges.take_rest()
            for topic in topics:
                for name, numbers in ranges.taken.items():
                    assignments[name] += [TopicPartition(topic, number) for number in numbers]
        for share in assignments.values():
            share.sort()
        return assignments


class _Ranges:
    """The numbers from 0 to `count`, divided among the members: each gets as many, the first that can one more."""

    def __init__(self, count: int, members: Sequence[Member]) -> None:
        self.taken: dict[str, list[int]] = {member.member_id: [] for member in members}
        self._members = members
        self._share, self._more = divmod(count, len(members))
        self._free = dict.fromkeys(range(count))

    def _room(self, member: Member) -> int:
        return max(0, self._share + (self._more > 0) - len(self.taken[member.member_id]))

    def _take(self, member: Member, numbers: Iterable[int]) -> None:
        mine = self.taken[member.member_id]
        for number in numbers:
            mine.append(number)
            del self._free[number]
            self._more -= len(mine) > self._share

    def take_by_member(self, racks: Sequence[frozenset[str]]) -> None:
        """Gives each member in turn the first numbers that are near to it."""
        near: dict[str | None, Iterator[int]] = {}
        for member in self._members:
            rack = member.rack
            if rack not in near:
                near[rack] = iter([number for number in self._free if not rack or rack in racks[number]])
            untaken = (number for number in near[rack] if number in self._free)
            self._take(member, list(islice(untaken, self._room(member))))

    def take_by_number(self, racks: Sequence[frozenset[str]]) -> None:
        """Gives each number to the first member that is near to it and has room."""
        queues: dict[str | None, list[int]] = {}
        for place in reversed(range(len(self._members))):
            queues.setdefault(self._members[place].rack or None, []).append(place)
        for number, near in enumerate(racks):
            for queue in queues.values():
                while queue and not self._room(self._members[queue[-1]]):
                    queue.pop()
            places = [queues[rack][-1] for rack in (*near, None) if queues.get(rack)]
            if places:
                self._take(self._members[min(places)], [number])

    def take_rest(self) -> None:
        """Gives each member in turn a run of what is left."""
        rest = iter(list(self._free))
        for member in self._members:
            self._take(member, islice(rest, self._room(member)))


class RoundRobinAssignor:
    """Deals out all partitions of all topics one by one, and passes over members that do not subscribe to the topic."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        assignments: Assignments = {member.member_id: [] for member in members}
        place_of = {member.member_id: place for place, member in enumerate(sorted(members, key=lambda m: m.rank))}
        turn = 0
        for topic, subscribers in subscribers_of(members, partition_counts).items():
            places = [place_of[member.member_id] for member in subscribers]
            at = bisect_left(places, turn)
            for partition in range(partition_counts[topic]):
                at = at % len(places)
                assignments[subscribers[at].member_id].append(TopicPartition(topic, partition))
                turn = (places[at] + 1) % len(members)
                at += 1
        return assignments
