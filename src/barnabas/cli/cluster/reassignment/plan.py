"""Proposes replicas for partitions: on the wanted brokers, spread over their racks and evenly, with few copies.

A broker's load is the bytes of its replicas, each with a tenth of the mean size added, and 10 MB at least: partitions
that are empty or nearly so are spread by their number. A replica moves only from or to a broker whose load is more than
a tenth away from the mean: a plan for partitions that lie as a plan says is empty.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from barnabas.cli.framework.output import CommandFailed
from barnabas.cli.framework.resources import are, plural
from barnabas.types import TopicPartition

__all__ = ["REPLICA_BYTES_MIN", "Assignment", "Racks", "plan_replicas"]

Assignment = Mapping[TopicPartition, Sequence[int]]
"""The brokers of each partition's replicas, the preferred leader first."""
Racks = Mapping[int, str | None]
"""The rack of each broker that may have replicas."""
REPLICA_BYTES_MIN: Final = 10_000_000
"""The bytes that each replica counts in addition to its own, at least: differences in size below that are no reason to
copy anything."""


def plan_replicas(
    present: Assignment,
    racks: Racks,
    *,
    replication_factor: int | None = None,
    others: Assignment | None = None,
    sizes: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, list[int]]:
    """Returns replicas for the partitions of `present` on the brokers of `racks`, in as many copies as before or as
    `replication_factor` says. `others` are partitions that stay, which count as load; `sizes` are the bytes of a
    replica. Raises CommandFailed where there are fewer brokers than copies."""
    others = others or {}
    weights = _weights([*present, *others], sizes or {})
    load = Counter(dict.fromkeys(racks, 0))
    for tp, replicas in others.items():
        load.update({node_id: weights[tp] for node_id in replicas if node_id in racks})
    planned: dict[TopicPartition, list[int]] = {}
    for tp, replicas in present.items():
        factor = replication_factor or len(replicas)
        if factor > len(racks):
            raise CommandFailed(
                f"{tp} needs {plural(factor, 'broker')} for its replicas, and there "
                f"{are(len(racks), 'broker')} to put them on; "
                f"add a broker{_or_fewer(tp.topic, len(racks))}"
            )
        planned[tp] = [node_id for node_id in replicas if node_id in racks][:factor]
        load.update(dict.fromkeys(planned[tp], weights[tp]))
    for tp, replicas in planned.items():
        _complete(replicas, replication_factor or len(present[tp]), racks, load, weights[tp])
        _spread_racks(replicas, racks, load, weights[tp])
    _Levelling(planned, racks, load, weights).run()
    _spread_leaders(planned, others, racks)
    return planned


def _or_fewer(topic: str, brokers: int) -> str:
    """Returns the other way out: a plan with as many replicas as there are brokers. Empty if there are none."""
    lower = f"`barnabas cluster reassign plan {topic} --replication-factor {brokers}`"
    return f", or lower the replication factor by {lower} and `reassign execute`" if brokers else ""


def _weights(partitions: Sequence[TopicPartition], sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns the load of one replica of each partition. They are integers: sums of them do not depend on the order."""
    total = sum(sizes.get(tp, 0) for tp in partitions)
    base = max(REPLICA_BYTES_MIN, total // (10 * max(1, len(partitions))))
    return {tp: sizes.get(tp, 0) + base for tp in partitions}


def _share(replicas: Sequence[int], racks: Racks, broker: int) -> int:
    """Returns how many replicas are in the rack of a broker already."""
    rack = racks[broker]
    return 0 if rack is None else sum(racks[node_id] == rack for node_id in replicas)


def _complete(replicas: list[int], factor: int, racks: Racks, load: Counter[int], weight: int) -> None:
    """Adds brokers with little load, in racks that have few of the replicas."""
    while len(replicas) < factor:
        free = set(racks) - set(replicas)
        chosen = min(free, key=lambda broker: (_share(replicas, racks, broker), load[broker], broker))
        replicas.append(chosen)
        load[chosen] += weight


def _spread_racks(replicas: list[int], racks: Racks, load: Counter[int], weight: int) -> None:
    """Moves replicas out of racks with several of them, as long as other racks have fewer."""
    for index, source in enumerate(replicas):
        rest = [node_id for node_id in replicas if node_id != source]
        free = ((_share(rest, racks, broker), load[broker], broker) for broker in racks if broker not in replicas)
        share, _, target = min(free, default=(len(rest), 0, source))
        if share < _share(rest, racks, source):
            replicas[index] = target
            load[source] -= weight
            load[target] += weight


class _Levelling:
    """Moves replicas from brokers with much load to brokers with little, where racks stay as spread as they are.

    With each step the sum of the loads' squares decreases. The steps depend on the loads and replicas alone, so where
    they ended no other levelling begins.
    """

    def __init__(
        self,
        planned: Mapping[TopicPartition, list[int]],
        racks: Racks,
        load: Counter[int],
        weights: Mapping[TopicPartition, int],
    ) -> None:
        self._planned = planned
        self._racks = racks
        self._load = load
        self._weights = weights
        self._total = sum(load.values())
        self._of_broker: dict[int, list[tuple[int, TopicPartition]]] = {node_id: [] for node_id in racks}
        """The replicas of each broker that may move, light ones first."""
        for tp, replicas in planned.items():
            for node_id in replicas:
                self._of_broker[node_id].append((weights[tp], tp))
        for found in self._of_broker.values():
            found.sort()

        self._barren: dict[tuple[int, int], int] = {}
        """The pairs of source and target between which no replica could move, with the gap between their loads then."""

    def run(self) -> None:
        """Moves until no replica can. What is barren is looked at once more in the end: other moves may have made room
        in a rack."""
        while True:
            while self._step():
                pass
            self._barren.clear()
            if not self._step():
                return

    def _step(self) -> bool:
        """Moves the replica that levels best between the most and the least loaded brokers. False: there is none."""
        load = self._load
        brokers = sorted(load, key=lambda node_id: (load[node_id], node_id))
        for source in reversed(brokers):
            for target in brokers:
                gap = load[source] - load[target]
                if gap <= 0:
                    break
                if gap <= self._barren.get((source, target), 0):
                    continue
                if not self._is_far_from_mean(source) and not self._is_far_from_mean(target):
                    continue
                for weight, tp in self._candidates(source, target, gap):
                    if self._may_move(tp, source, target):
                        self._move(weight, tp, source, target)
                        return True
                self._barren[source, target] = gap
        return False

    def _is_far_from_mean(self, node_id: int) -> bool:
        return 10 * abs(self._load[node_id] * len(self._load) - self._total) > self._total

    def _candidates(self, source: int, target: int, gap: int) -> Iterator[tuple[int, TopicPartition]]:
        """Yields the replicas whose move makes the gap smaller, those first of which so many as even out the number of
        replicas close it, too."""
        found = self._of_broker[source]
        ideal = gap // max(2, len(found) - len(self._of_broker[target]))
        above = bisect_left(found, (ideal + 1,))
        below = above - 1
        while True:
            has_above = above < len(found) and found[above][0] < gap
            if below >= 0 and (not has_above or ideal - found[below][0] <= found[above][0] - ideal):
                yield found[below]
                below -= 1
            elif has_above:
                yield found[above]
                above += 1
            else:
                return

    def _may_move(self, tp: TopicPartition, source: int, target: int) -> bool:
        replicas = self._planned[tp]
        if target in replicas:
            return False
        rest = [node_id for node_id in replicas if node_id != source]
        return _share(rest, self._racks, target) <= _share(rest, self._racks, source)

    def _move(self, weight: int, tp: TopicPartition, source: int, target: int) -> None:
        replicas = self._planned[tp]
        replicas[replicas.index(source)] = target
        self._of_broker[source].remove((weight, tp))
        insort(self._of_broker[target], (weight, tp))
        self._load[source] -= weight
        self._load[target] += weight
        for other in self._racks:
            self._barren.pop((target, other), None)


def _spread_leaders(planned: Mapping[TopicPartition, list[int]], others: Assignment, racks: Racks) -> None:
    """Puts other replicas first until no broker is the preferred leader of more partitions than it has to be, by the
    fewest changes: a broker hands one on to another, which may hand another one on."""
    leaders = Counter(dict.fromkeys(racks, 0))
    leaders.update(replicas[0] for replicas in others.values() if replicas[0] in racks)
    led: dict[int, set[TopicPartition]] = {node_id: set() for node_id in racks}
    for tp, replicas in planned.items():
        led[replicas[0]].add(tp)
        leaders[replicas[0]] += 1
    while way := _way_to_fewer(planned, led, leaders):
        for tp, target in way:
            replicas = planned[tp]
            source = replicas[0]
            led[source].remove(tp)
            led[target].add(tp)
            replicas.remove(target)
            replicas.insert(0, target)
            leaders[source] -= 1
            leaders[target] += 1


def _way_to_fewer(
    planned: Mapping[TopicPartition, list[int]], led: Mapping[int, set[TopicPartition]], leaders: Counter[int]
) -> list[tuple[TopicPartition, int]]:
    """Returns partitions with their next leaders, by which a broker with many leads one less, and one that leads two
    less or fewer gets one. Empty: there is no such way."""
    for source in sorted(led, key=lambda node_id: (-leaders[node_id], node_id)):
        reached: dict[int, list[tuple[TopicPartition, int]]] = {source: []}
        edge = [source]
        while edge:
            found: dict[int, list[tuple[TopicPartition, int]]] = {}
            for node_id in edge:
                for tp in sorted(led[node_id]):
                    for target in planned[tp][1:]:
                        if target not in reached and target not in found:
                            found[target] = [*reached[node_id], (tp, target)]
            fewest = min(found, key=lambda node_id: (leaders[node_id], node_id), default=source)
            if leaders[fewest] + 2 <= leaders[source]:
                return found[fewest]
            reached |= found
            edge = list(found)
    return []
