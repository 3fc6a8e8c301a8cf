"""Which segment files a path means, and of which partitions they are."""

import glob
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas.errors import UsageError
from barnabas.log.directories.data_directory import METADATA_TOPIC, parse_directory_name
from barnabas.types import TopicPartition

__all__ = ["OFFSETS_END", "SegmentFile", "find_segments"]

OFFSETS_END: Final = 2**63 - 1
_SEGMENT: Final = re.compile(r"\d{20}\.log")
_FILE: Final = "file://"


class SegmentFile(NamedTuple):
    """One file as it is when the query is planned. A broker may append to the newest one meanwhile."""

    path: str
    partition: TopicPartition
    base_offset: int
    next_base_offset: int
    """That of the next file; the end of all offsets for the newest one."""
    size: int
    inode: int

    @property
    def is_newest(self) -> bool:
        return self.next_base_offset == OFFSETS_END


def find_segments(paths: str, wants: Callable[[TopicPartition], bool] | None = None) -> list[SegmentFile]:
    """The files of these paths (data directories, partitions' directories, files, patterns of them; commas between), in
    order. `wants`: which partitions; without it all but internal topics, unless their directory is named itself.
    Raises UsageError."""
    found: dict[TopicPartition, tuple[str, list[SegmentFile]]] = {}
    for directory, names in _directories(paths, wants):
        partition = _partition_of(directory)
        if partition in found and found[partition][0] != os.path.realpath(directory):
            raise UsageError(
                f"option segments: {partition} is in {found[partition][0]} and in {directory}, its records would come"
                " twice; name one of them"
            )
        if wants is None or wants(partition):
            found.setdefault(partition, (os.path.realpath(directory), _files_in(directory, partition, names)))
    if not found:
        raise UsageError(f"option segments={paths}: there is no log of the topics that the query wants")
    return [file for _, (_, files) in sorted(found.items()) for file in files]


def _directories(
    paths: str, wants: Callable[[TopicPartition], bool] | None
) -> Iterator[tuple[str, frozenset[str] | None]]:
    """(directory of a partition, names of the files that are wanted of it or None for all)."""
    for pattern in filter(None, (part.strip().removeprefix(_FILE) for part in paths.split(","))):
        there = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        files: dict[str, set[str]] = {}
        count = 0
        for path in there:
            if os.path.isdir(path):
                named = list(_within(path, wants))
                count += len(named)
                yield from named
            elif _SEGMENT.fullmatch(os.path.basename(path)) and os.path.exists(path):
                files.setdefault(os.path.dirname(os.path.abspath(path)), set()).add(os.path.basename(path))
        yield from ((directory, frozenset(names)) for directory, names in files.items())
        if not count and not files:
            raise _nothing_at(pattern)


def _within(path: str, wants: Callable[[TopicPartition], bool] | None) -> Iterator[tuple[str, None]]:
    """The directory itself if it is a partition's, or those in it."""
    if _has_segments(path):
        yield path, None
        return
    with os.scandir(path) as entries:
        children = sorted(entry.path for entry in entries if entry.is_dir())
    for child in children:
        partition = parse_directory_name(os.path.basename(child))
        if partition is None or partition.topic == METADATA_TOPIC or not _has_segments(child):
            continue
        if wants is not None or not partition.topic.startswith("__"):
            yield child, None


def _has_segments(path: str) -> bool:
    return any(map(_SEGMENT.fullmatch, os.listdir(path)))


def _nothing_at(pattern: str) -> UsageError:
    if not glob.has_magic(pattern) and not os.path.exists(pattern):
        return UsageError(
            f"option segments: {pattern} does not exist here; give a data directory, a partition's directory such as"
            " /data/orders-0, or a pattern of them"
        )
    return UsageError(
        f"option segments: {pattern} holds no logs; their directories are named as orders-0 and hold files such as"
        " 00000000000000000000.log"
    )


def _partition_of(directory: str) -> TopicPartition:
    name = os.path.basename(os.path.abspath(directory))
    partition = parse_directory_name(name)
    if partition is None:
        raise UsageError(
            f"option segments: {directory} holds segments, but its name does not say of what; name it (or a link to it)"
            " <topic>-<partition>, as orders-0"
        )
    return partition


def _files_in(directory: str, partition: TopicPartition, names: frozenset[str] | None) -> list[SegmentFile]:
    all_of_them = sorted(name for name in os.listdir(directory) if _SEGMENT.fullmatch(name))
    found = []
    for name, following in pairwise([*all_of_them, None]):
        assert name is not None, "only the last one is none"
        if names is not None and name not in names:
            continue
        path = os.path.join(os.path.abspath(directory), name)
        status = os.stat(path)
        next_base = OFFSETS_END if following is None else int(following[:20])
        found.append(SegmentFile(path, partition, int(name[:20]), next_base, status.st_size, status.st_ino))
    return found
