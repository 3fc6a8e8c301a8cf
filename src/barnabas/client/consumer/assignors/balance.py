"""Balances partitions over members that subscribe to different topics, and moves as few partitions as that allows.

The moves end when no member can give a partition to one that has two fewer, not even through other members.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from barnabas.client.consumer.assignors.members import Assignments, Member
from barnabas.types import TopicPartition

__all__ = ["balance"]


def balance(
    members: Sequence[Member],
    subscribers: Mapping[str, Sequence[Member]],
    partition_counts: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
) -> Assignments:
    """Returns a balanced assignment. `subscribers` has those of each topic with partitions, and `owners` the current
    owners of partitions that may stay."""
    table = _Table(members, subscribers, owners)
    table.add_free(partition_counts)
    table.level()
    return {
        name: [TopicPartition(topic, index) for topic, indexes in held.items() for index in indexes]
        for name, held in table.held.items()
    }


class _Table:
    def __init__(
        self,
        members: Sequence[Member],
        subscribers: Mapping[str, Sequence[Member]],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self.wanting = {topic: [member.member_id for member in wanting] for topic, wanting in subscribers.items()}
        self.held: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in members}
        self.load = dict.fromkeys(self.held, 0)
        self._owners = owners
        for (topic, index), name in sorted(owners.items()):
            self._give(name, topic, index)

    def _give(self, name: str, topic: str, index: int) -> None:
        self.held[name].setdefault(topic, []).append(index)
        self.load[name] += 1

    def add_free(self, partition_counts: Mapping[str, int]) -> None:
        """Gives partitions without an owner to the subscriber that has least, topics with few subscribers first."""
        for topic in sorted(self.wanting, key=lambda topic: (len(self.wanting[topic]), topic)):
            queue = [(self.load[name], name) for name in self.wanting[topic]]
            heapify(queue)
            for index in range(partition_counts[topic]):
                if TopicPartition(topic, index) not in self._owners:
                    _, name = heappop(queue)
                    self._give(name, topic, index)
                    heappush(queue, (self.load[name], name))

    def level(self) -> None:
        """Moves partitions until no member has two more than another member that could take one of them.

        The move may go through third members: if b subscribes to no topic of a, and c shares topics with both, then
        c takes a partition of a and gives another one to b. A member reaches all members that get one in this way.
        The fullest member goes first. If all members that it reaches have enough, the same holds for each of them,
        because they reach no others: so each member is visited once, and once more for each move.
        """
        queue = [(-load, name) for name, load in self.load.items()]
        heapify(queue)
        settled: set[str] = set()
        while queue:
            load, name = heappop(queue)
            if name in settled or -load != self.load[name]:
                continue
            before, target = self._search(name)
            if target is None:
                settled |= before.keys()
                continue
            self._move_along(before, target)
            heappush(queue, (-self.load[name], name))
            heappush(queue, (-self.load[target], target))

    def _search(self, start: str) -> tuple[dict[str, tuple[str, str]], str | None]:
        """Returns for each reachable member the member and the topic that lead to it, and a target: of the nearest
        members that have at least two partitions fewer, the one with least."""
        before: dict[str, tuple[str, str]] = {start: ("", "")}
        seen_topics: set[str] = set()
        limit = self.load[start] - 2
        ring = deque([start])
        while ring:
            found: list[str] = []
            for _ in range(len(ring)):
                name = ring.popleft()
                for topic, indexes in self.held[name].items():
                    if not indexes or topic in seen_topics:
                        continue
                    seen_topics.add(topic)
                    for other in self.wanting[topic]:
                        if other not in before:
                            before[other] = (name, topic)
                            ring.append(other)
                            if self.load[other] <= limit:
                                found.append(other)
            if found:
                return before, min(found, key=lambda name: (self.load[name], name))
        return before, None

    def _move_along(self, before: Mapping[str, tuple[str, str]], target: str) -> None:
        name = target
        while True:
            giver, topic = before[name]
            if not giver:
                return
            self._move(giver, name, topic)
            name = giver

    def _move(self, giver: str, taker: str, topic: str) -> None:
        """Moves one partition of the topic: best one that the taker owned, then one that the giver did not own."""

        def regret(index: int) -> int:
            owner = self._owners.get(TopicPartition(topic, index))
            return 0 if owner == taker else 2 if owner == giver else 1

        indexes = self.held[giver][topic]
        index = min(reversed(indexes), key=regret)
        indexes.remove(index)
        self.load[giver] -= 1
        self._give(taker, topic, index)
