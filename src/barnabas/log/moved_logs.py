"""Settles moves of logs between data directories that were interrupted when there were two directories of one log.

A future log takes the place of the current one by a rename of its directory. The old directory stays until all records
of the new one are on the disk. Meanwhile a file in the new directory, `barnabas-moved-from`, holds the id of the data
directory that has the old one.
"""

import contextlib
import logging
import os
import uuid
from typing import Final, NamedTuple

from barnabas.errors import DirectoryUnusable
from barnabas.log.directories.checkpoints import format_topic_id, parse_topic_id, replace_file
from barnabas.log.directories.data_directory import DELETE_SUFFIX, DataDirectory, aside_directory_name
from barnabas.log.directories.disk import fsync_directory
from barnabas.log.unified_log import UnifiedLog

__all__ = ["LogInDirectory", "choose_log", "forget_origin", "note_origin", "set_aside_for_deletion"]

ORIGIN: Final = "barnabas-moved-from"

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


def set_aside_for_deletion(log: UnifiedLog, home: DataDirectory) -> None:
    """Renames the directory of a log to Kafka's name for a deleted one. Raises OSError."""
    path = f"{home.path}/{aside_directory_name(log.topic_partition, DELETE_SUFFIX)}"
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
    if _origin_of(second.log.directory) == first.home.directory_id:
        old, new = first, second
    elif _origin_of(first.log.directory) == second.home.directory_id:
        old, new = second, first
    else:
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
    set_aside_for_deletion(other.log, other.home)
    fsync_directory(other.home.path)
    forget_origin(log.directory)
    return chosen


def _latest(log: UnifiedLog) -> tuple[int, int]:
    return log.leader_epochs.latest, log.log_end_offset
