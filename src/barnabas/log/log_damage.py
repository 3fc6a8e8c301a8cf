"""Notes that a part of a log cannot be read: the disk refuses it, or what lies there is no batch.

Whoever reads notes it: a lookup, a slice that is being sent, a coordinator's load, the cleaner. It is said once. The
log goes on with what it has, and its broker has another replica lead if one is in sync.
"""

import contextlib
import errno
import logging
from collections.abc import Callable
from typing import Final

from barnabas.log.directories.checkpoints import replace_file
from barnabas.types import TopicPartition

__all__ = ["MARK", "WAS_MISSING", "LogDamage", "is_disk_error", "mark_damaged", "read_mark", "write_mark"]

MARK: Final = "barnabas-damaged"
"""The file in the directory of a damaged log by which the next start checks all of it, and cuts nothing but a torn
end. It says what was found first, or in which offsets records are missing at what was the log's end."""

WAS_MISSING: Final = "was missing at a start"
"""Said of a log that was made anew although it had records: what it has now is whole."""

_DISK_ERRORS: Final = frozenset(
    number
    for name in ("EIO", "EBADMSG", "ENODATA", "ENOENT", "ENXIO", "EREMOTEIO", "ESTALE", "EUCLEAN")
    if (number := getattr(errno, name, None)) is not None
)
"""The errors by which a file system says that data are lost. Others pass, like those for want of descriptors or memory,
or are those of a socket."""

_log = logging.getLogger(__name__)


def is_disk_error(error: OSError) -> bool:
    """Returns whether a read has failed because of what it was to read."""
    return error.errno in _DISK_ERRORS


def read_mark(directory: str) -> str | None:
    """Returns what the mark of a log says; '' if it cannot be read, None if there is none."""
    try:
        with open(f"{directory}/{MARK}", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def mark_damaged(directory: str, found: str) -> None:
    """Writes the mark of a log. Does nothing if the disk refuses that."""
    with contextlib.suppress(OSError):
        _write(directory, found, sync=False)


def write_mark(directory: str, found: str) -> None:
    """Writes the mark of a log to the device. Raises OSError: without it the next start would take what is missing for
    what never was."""
    _write(directory, found, sync=True)


def _write(directory: str, found: str, *, sync: bool) -> None:
    replace_file(f"{directory}/{MARK}", f"{found}\n".encode(errors="surrogateescape"), sync=sync)


class LogDamage:
    """The first damage of a log that was found. Used on one thread."""

    __slots__ = ("found", "on_found", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.found = ""
        """The file, the position and what is wrong there; '' if the log is whole as far as anybody knows."""
        self.on_found: Callable[[], None] | None = None

    def note(self, found: str) -> None:
        """Notes what cannot be read. Does nothing after the first time."""
        if self.found:
            return
        self.found = found
        _log.error("%s is damaged: %s", self.topic_partition, found)
        if self.on_found is not None:
            self.on_found()
