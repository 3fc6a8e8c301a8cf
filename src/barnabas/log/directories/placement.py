"""Chooses the data directory of a new log, so that the death of one disk does not cost all replicas of a partition."""

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.types import TopicPartition

__all__ = ["DirectoryUse", "choose_directory"]

_ROUND: Final = 3
"""The partitions that begin at the same place: as many as most have replicas. It cannot be the number of a partition's
replicas, which may change: added ones have to meet the same beginning."""


class DirectoryUse(NamedTuple):
    """A directory as far as it matters for the choice: its file system's device, and the number of its logs."""

    device: int
    logs: int
    is_usable: bool = True
    """Whether it has room, and has not failed."""


def choose_directory(
    topic_partition: TopicPartition, replica_position: int | None, directories: Sequence[DirectoryUse]
) -> int:
    """Returns the index of the directory for a new log.

    Brokers of one machine that have directories on the same disks choose each by itself: by the partition and by the
    place among its replicas (`replica_position`, from 0), which differs, they take turns over the disks, or over the
    directories if there is one disk. Replicas that are added later go on where those that are there end. On a disk
    with several directories the one with the fewest logs is taken; without other replicas (`replica_position` is None)
    that of all. If a turn comes to what is not usable, those that are take turns.
    """
    found = _choose(topic_partition, replica_position, directories)
    usable = [index for index, directory in enumerate(directories) if directory.is_usable]
    if not usable or found in usable:
        return found
    return usable[_choose(topic_partition, replica_position, [directories[index] for index in usable])]


def _choose(topic_partition: TopicPartition, replica_position: int | None, directories: Sequence[DirectoryUse]) -> int:
    chosen = list(range(len(directories)))
    if replica_position is not None:
        devices = sorted({directory.device for directory in directories})
        places = len(devices) if len(devices) > 1 else len(directories)
        turn = (_start(topic_partition, places) + replica_position) % places
        if len(devices) == 1:
            return turn
        chosen = [index for index in chosen if directories[index].device == devices[turn]]
    return min(chosen, key=lambda index: directories[index].logs)


def _start(topic_partition: TopicPartition, places: int) -> int:
    """Returns the place of the first replica, but for a multiple of `places`.

    Where brokers take turns as first replicas, each has every position once in a round of partitions, and is in several
    places if these begin at the same one. The next round begins at the next place, as brokers may have the same
    position in all partitions. And in each round over the places these come one place later, by the digits of a number
    to their base (Thue and Morse): what repeats itself in the turns of brokers meets no rhythm here.
    """
    rounds, start = topic_partition.partition // _ROUND, zlib.crc32(topic_partition.topic.encode())
    while rounds and places > 1:
        rounds, digit = divmod(rounds, places)
        start += digit
    return start
