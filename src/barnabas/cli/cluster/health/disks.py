"""The findings about disks that replicas of one partition share."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from barnabas.cli.cluster.health.state import ClusterState
from barnabas.cli.framework.resources import plural, some
from barnabas.client.diagnosis.checks import OK, WARNING, Check
from barnabas.types import TopicPartition

__all__ = ["disk_findings", "most_devices"]

NAMED_MAX: Final = 3


def disk_findings(state: ClusterState) -> Iterator[Check]:
    """Yields a check of the partitions whose replicas share disks although they could be on more. Replicas that are
    being moved or reassigned, or whose brokers do not tell their disks, are left out."""
    devices = {
        node_id: {directory.device for directory in directories if directory.device and not directory.error_code}
        for node_id, directories in state.directories.items()
    }
    kept: defaultdict[TopicPartition, dict[int, str]] = defaultdict(dict)
    for node_id, directories in state.directories.items():
        for directory in directories:
            for replica in directory.replicas:
                if directory.device and not replica.is_future:
                    kept[TopicPartition(replica.topic, replica.partition)][node_id] = directory.device
    known: dict[frozenset[int], int] = {}
    crowded: list[TopicPartition] = []
    shared = 0
    for tp, homes in sorted(kept.items()):
        if len(homes) < 2 or tp in state.reassignments:
            continue
        brokers = frozenset(homes)
        if brokers not in known:
            known[brokers] = most_devices({node_id: sorted(devices[node_id]) for node_id in brokers})
        if len(set(homes.values())) < known[brokers]:
            crowded.append(tp)
        shared += len(set(homes.values())) == 1
    if crowded:
        have = "has" if len(crowded) == 1 else "have"
        detail = f"{some(crowded, NAMED_MAX)} {have} replicas on the same disk, which could be on more disks"
        hint = (
            "if it fails, all of these are gone: `barnabas log-dirs --replicas` shows where they are, and"
            " `barnabas log-dirs move TOPIC:PARTITION --broker N --to PATH` moves one"
        )
        yield Check("disks", plural(len(crowded), "partition"), WARNING, detail, hint)
    elif shared:
        detail = "have all replicas on the same disk, as these brokers have no other: if it fails, all are gone"
        yield Check("disks", plural(shared, "partition"), OK, detail)


def most_devices(choices: Mapping[int, Sequence[str]]) -> int:
    """Returns on how many devices the replicas of these brokers can be at most, one replica on each broker."""
    taken: dict[str, int] = {}

    def place(node_id: int, tried: set[str]) -> bool:
        for device in choices[node_id]:
            if device not in tried:
                tried.add(device)
                if device not in taken or place(taken[device], tried):
                    taken[device] = node_id
                    return True
        return False

    return sum(place(node_id, set()) for node_id in choices)
