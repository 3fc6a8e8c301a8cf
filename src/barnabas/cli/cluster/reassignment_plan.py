"""Proposes replicas for partitions: on the wanted brokers, spread over their racks and evenly, with few moves."""

from collections import Counter
from collections.abc import Mapping, Sequence

from barnabas.cli.framework.output import CommandFailed
from barnabas.cli.framework.resources import plural
from barnabas.types import TopicPartition

__all__ = ["Assignment", "plan_replicas"]

Assignment = Mapping[TopicPartition, Sequence[int]]
"""The brokers of each partition's replicas, the preferred leader first."""


def plan_replicas(
    present: Assignment,
    racks: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
    others: Assignment | None = None,
) -> dict[TopicPartition, list[int]]:
    """Returns replicas for the partitions of `present` on the brokers of `racks`, in as many copies as before or as
    `replication_factor` says. `others` are partitions that stay, which count as load. Raises CommandFailed where there
    are fewer brokers than copies."""
    load = Counter(dict.fromkeys(racks, 0))
    load.update(node_id for replicas in (others or {}).values() for node_id in replicas if node_id in racks)
    planned: dict[TopicPartition, list[int]] = {}
    for partition, replicas in present.items():
        factor = replication_factor or len(replicas)
        if factor > len(racks):
            raise CommandFailed(
                f"{partition} needs {factor} brokers for its replicas, and there {_are(len(racks))} to put them on"
            )
        planned[partition] = [node_id for node_id in replicas if node_id in racks][:factor]
        load.update(planned[partition])
    for partition, replicas in planned.items():
        while len(replicas) < (replication_factor or len(present[partition])):
            chosen = min(
                set(racks) - set(replicas), key=lambda broker: (_share(replicas, racks, broker), load[broker], broker)
            )
            replicas.append(chosen)
            load[chosen] += 1
    _level(planned, racks, load)
    _spread_leaders(planned, others or {}, racks)
    return planned


def _are(brokers: int) -> str:
    return f"{'is' if brokers == 1 else 'are'} {plural(brokers, 'broker')}"


def _share(replicas: Sequence[int], racks: Mapping[int, str | None], broker: int) -> int:
    """Returns how many replicas are in the rack of a broker already."""
    rack = racks[broker]
    return 0 if rack is None else sum(racks[node_id] == rack for node_id in replicas)


def _level(planned: Mapping[TopicPartition, list[int]], racks: Mapping[int, str | None], load: Counter[int]) -> None:
    """Moves replicas from brokers with many to brokers with few, where racks stay as spread as they are."""
    for replicas in planned.values():
        for index, source in enumerate(replicas):
            rest = [node_id for node_id in replicas if node_id != source]
            share = _share(rest, racks, source)
            target_share, target_load, target = min(
                ((_share(rest, racks, broker), load[broker], broker) for broker in racks if broker not in replicas),
                default=(share, load[source], source),
            )
            if target_share < share or (target_share == share and target_load + 1 < load[source]):
                replicas[index] = target
                load[source] -= 1
                load[target] += 1


def _spread_leaders(
    planned: Mapping[TopicPartition, list[int]], others: Assignment, racks: Mapping[int, str | None]
) -> None:
    """Puts another replica first where its broker is the preferred leader of fewer partitions."""
    leaders = Counter(dict.fromkeys(racks, 0))
    leaders.update(replicas[0] for replicas in [*planned.values(), *others.values()])
    for replicas in planned.values():
        best = min(replicas, key=lambda node_id: leaders[node_id])
        if leaders[best] + 1 < leaders[replicas[0]]:
            leaders[best] += 1
            leaders[replicas[0]] -= 1
            replicas.remove(best)
            replicas.insert(0, best)
