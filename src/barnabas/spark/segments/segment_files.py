"""Finds the segment files of a path, and the partitions that they belong to."""

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
_FILE_SCHEME: Final = "file://"


class SegmentFile(NamedTuple):
    """A segment file as it was when the query was planned. A broker may append to the newest file afterwards."""

    path: str
    partition: TopicPartition
    base_offset: int
    next_base_offset: int
    """The base offset of the next file; `OFFSETS_END` for the newest file."""
    size: int
    inode: int

    @property
    def is_newest(self) -> bool:
        return self.next_base_offset == OFFSETS_END


def find_segments(paths: str, selects: Callable[[TopicPartition], bool] | None = None) -> list[SegmentFile]:
    """Returns the segment files of comma-separated paths, sorted by partition and offset. A path is a data directory, a
    partition's directory, a file, or a pattern. `selects` says which partitions the query reads. Without it internal
    topics are left out, unless a path names their directory. Raises UsageError."""
    partitions: dict[TopicPartition, tuple[str, list[SegmentFile]]] = {}
    for directory, names in _directories(paths, selects):
        partition = _partition_of(directory)
        if partition in partitions and partitions[partition][0] != os.path.realpath(directory):
            raise UsageError(
                f"option segments: {partition} is in {partitions[partition][0]} and in {directory}, its records would"
                " come twice; name one of them"
            )
        if selects is None or selects(partition):
            partitions.setdefault(partition, (os.path.realpath(directory), _files_in(directory, partition, names)))
    if not partitions:
        raise UsageError(f"option segments={paths}: there is no log of the topics that the query reads")
    return [file for _, (_, files) in sorted(partitions.items()) for file in files]


def _directories(
    paths: str, selects: Callable[[TopicPartition], bool] | None
) -> Iterator[tuple[str, frozenset[str] | None]]:
    """Yields partitions' directories, each with the names of the files to read, or None for all of them."""
    for pattern in filter(None, (part.strip().removeprefix(_FILE_SCHEME) for part in paths.split(","))):
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        files: dict[str, set[str]] = {}
        is_empty = True
        for path in matches:
            if os.path.isdir(path):
                for directory in _partition_directories(path, selects):
                    is_empty = False
                    yield directory, None
            elif _SEGMENT.fullmatch(os.path.basename(path)) and os.path.exists(path):
                files.setdefault(os.path.dirname(os.path.abspath(path)), set()).add(os.path.basename(path))
        yield from ((directory, frozenset(names)) for directory, names in files.items())
        if is_empty and not files:
            raise _no_logs(pattern)


def _partition_directories(path: str, selects: Callable[[TopicPartition], bool] | None) -> Iterator[str]:
    """Yields the directory itself if it is a partition's, otherwise the partitions' directories in it."""
    if _has_segments(path):
        yield path
        return
    with os.scandir(path) as entries:
        children = sorted(entry.path for entry in entries if entry.is_dir())
    for child in children:
        partition = parse_directory_name(os.path.basename(child))
        if partition is None or partition.topic == METADATA_TOPIC or not _has_segments(child):
            continue
        if selects is not None or not partition.topic.startswith("__"):
            yield child


def _has_segments(path: str) -> bool:
    return any(map(_SEGMENT.fullmatch, os.listdir(path)))


def _no_logs(pattern: str) -> UsageError:
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
            f"option segments: {directory} holds segments, but its name does not say of which partition; name it (or a"
            " link to it) <topic>-<partition>, as orders-0"
        )
    return partition


def _files_in(directory: str, partition: TopicPartition, names: frozenset[str] | None) -> list[SegmentFile]:
    all_names = sorted(name for name in os.listdir(directory) if _SEGMENT.fullmatch(name))
    files = []
    for name, following in pairwise([*all_names, None]):
        assert name is not None, "only the last name is None"
        if names is not None and name not in names:
            continue
        path = os.path.join(os.path.abspath(directory), name)
        status = os.stat(path)
        next_base = OFFSETS_END if following is None else int(following[:20])
        files.append(SegmentFile(path, partition, int(name[:20]), next_base, status.st_size, status.st_ino))
    return files
