"""Range and round robin: assignments that do not depend on the previous one."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from barnabas.client.consumer.assignors.members import Assignments, LastAssignment, Member, subscribers_of
from barnabas.types import TopicPartition

__all__ = ["RangeAssignor", "RoundRobinAssignor"]


class RangeAssignor:
    """Gives each member one run of each topic's partitions, the first members one more.

    Seven partitions for a, b, c: a has 0 to 2, b 3 and 4, c 5 and 6. Topics with as many partitions and the same
    subscribers are divided alike, so that equal keys of both come to one member.
    """

    name = "range"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        assignments: Assignments = {member.member_id: [] for member in members}
        for topic, subscribers in subscribers_of(members, partition_counts).items():
            share, more = divmod(partition_counts[topic], len(subscribers))
            start = 0
            for index, member in enumerate(subscribers):
                end = start + share + (index < more)
                assignments[member.member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
                start = end
        return assignments


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
