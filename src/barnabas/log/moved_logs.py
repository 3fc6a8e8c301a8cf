"""Settles moves of logs between data directories that were interrupted when there were two directories of one log.

A future log takes the place of the current one by a rename of its directory. The old directory stays until all records
of the new one are on the disk, under the name of a stray with the id of the data directory that has the new one:
`flights-3.<32 hex digits>-stray`. It never counts as the log again, only beside the new one after a loss of power.
Meanwhile a file in the new directory, `barnabas-moved-from`, holds the id of the data directory that has the old one.
"""

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.errors import DirectoryUnusable
from barnabas.log.directories.checkpoints import (
    format_topic_id,
    parse_topic_id,
    read_partition_metadata,
    replace_file,
)
from barnabas.log.directories.data_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    DataDirectory,
    aside_directory_name,
    parse_directory_name,
)
from barnabas.log.directories.disk import fsync_directory, is_there
from barnabas.log.unified_log import UnifiedLog
from barnabas.types import TopicPartition

__all__ = [
    "ORIGIN",
    "LogInDirectory",
    "choose_log",
    "forget_origin",
    "mark_replaced",
    "note_origin",
    "replaced_logs",
    "set_aside",
]

ORIGIN: Final = "barnabas-moved-from"
_REPLACED: Final = re.compile(r"(.+-\d+)\.([0-9a-f]{32})" + STRAY_SUFFIX)

_log = logging.getLogger(__name__)


class LogInDirectory(NamedTuple):
    """A log, and the data directory that it is in."""

    log: UnifiedLog
    home: DataDirectory


def note_origin(directory: str, origin: DataDirectory) -> None:
    """Notes in a log's directory which data directory it is moved from. Blocks for a sync. Raises OSError."""
    assert origin.directory_id is not None, origin.path
    replace_file(f"{directory}/{ORIGIN}", format_topic_id(origin.directory_id).encode())


def _origin_of(directory: str) -> uuid.UUID | None:
    try:
        with open(f"{directory}/{ORIGIN}", encoding="ascii", errors="replace") as file:
            return parse_topic_id(file.read().strip())
    except (FileNotFoundError, ValueError):
        return None


def forget_origin(directory: str) -> None:
    """Removes the note, because the old directory is gone. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}/{ORIGIN}")


def mark_replaced(old: LogInDirectory, new_home: DataDirectory) -> None:
    """Renames the directory of a log whose place another one has taken: no start finds it under the log's name, also if
    the new one is lost. Needs no space; blocks for syncs, first for that of the new one's name. Raises OSError."""
    path = _replaced_path(old.log.topic_partition, old.home, new_home)
    if old.log.directory != path:
        fsync_directory(new_home.path)
        if is_there(path):  # of an earlier move, whose new log was lost
            os.rename(path, f"{old.home.path}/{aside_directory_name(old.log.topic_partition, STRAY_SUFFIX)}")
        os.rename(old.log.directory, path)
        old.log.rename_directory(path)
    fsync_directory(old.home.path)


def _replaced_path(topic_partition: TopicPartition, home: DataDirectory, new_home: DataDirectory) -> str:
    return f"{home.path}/{aside_directory_name(topic_partition, STRAY_SUFFIX, new_home.directory_id)}"


def replaced_logs(
    directory: DataDirectory, logs: Iterable[tuple[TopicPartition, DataDirectory]]
) -> Iterator[tuple[TopicPartition, str]]:
    """Yields the logs in a data directory, with their paths, whose places one of `logs` has taken."""
    new = {(topic_partition, home.directory_id): home for topic_partition, home in logs if home is not directory}
    for name in sorted(os.listdir(directory.path)):
        found = _REPLACED.fullmatch(name)
        topic_partition = parse_directory_name(found[1]) if found else None
        home = new.get((topic_partition, uuid.UUID(found[2]))) if found and topic_partition else None
        if home is None or topic_partition is None:
            continue
        path = f"{directory.path}/{name}"
        if read_partition_metadata(path) == read_partition_metadata(f"{home.path}/{topic_partition}"):
            yield topic_partition, path


def set_aside(log: UnifiedLog, home: DataDirectory, suffix: str = DELETE_SUFFIX) -> None:
    """Renames the directory of a log to Kafka's name for a deleted one, or with another suffix. Raises OSError."""
    path = f"{home.path}/{aside_directory_name(log.topic_partition, suffix)}"
    os.rename(log.directory, path)
    log.release()
    log.rename_directory(path)


def choose_log(first: LogInDirectory, second: LogInDirectory, *, power_was_lost: bool) -> LogInDirectory:
    """Chooses between the two logs of a partition after an interrupted move, and sets the other one aside. Raises
    UsageError if they are not of a move, OSError.

    The new log has all records that the old one had, and later ones. But after a loss of power its last ones may be
    missing. The old one has them if they were synced. So the log with the latest records is chosen then, as in an
    election.
    """
    pairs = ((first, second), (second, first))
    old, new = next((pair for pair in pairs if _was_moved(*pair)), (None, None))
    if old is None or new is None:
        raise DirectoryUnusable(
            f"{second.log.directory} and {first.log.directory} hold the same partition; move one away"
        )
    chosen, other = new, old
    if power_was_lost and _latest(old.log) > _latest(new.log):
        chosen, other = old, new
    log = chosen.log
    _log.warning("%s was being moved: goes on in %s, %s is removed", log, log.directory, other.log.directory)
    log.advance_log_start(min(max(log.log_start_offset, other.log.log_start_offset), log.log_end_offset))
    log.update_high_watermark(other.log.high_watermark)
    path = f"{chosen.home.path}/{log.topic_partition}"
    if log.directory != path:  # the old one, which was marked as replaced
        os.rename(log.directory, path)
        log.rename_directory(path)
        fsync_directory(chosen.home.path)
    set_aside(other.log, other.home)
    fsync_directory(other.home.path)
    forget_origin(log.directory)
    return chosen


def _was_moved(old: LogInDirectory, new: LogInDirectory) -> bool:
    if _origin_of(new.log.directory) != old.home.directory_id:
        return False
    replaced = _replaced_path(old.log.topic_partition, old.home, new.home)
    return old.log.directory == replaced or not is_there(replaced)  # else it was made since, and may have more


def _latest(log: UnifiedLog) -> tuple[int, int]:
    return log.leader_epochs.latest, log.log_end_offset
