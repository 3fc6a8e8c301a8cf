"""Checks before the start that every data directory of this broker is there.

A directory that is not mounted looks like an empty one. Partitions made anew in it would begin at offset 0, beside
their records of before. So the registry records the `directory.id` of each data directory, and a broker starts only
with all of them, wherever they are mounted, or when the operator declares one lost.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from barnabas.errors import UsageError
from barnabas.log.directories.checkpoints import format_topic_id
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.registry.embedded import is_founded

__all__ = ["REGISTRY_FILE", "registry_path", "require_directories"]

REGISTRY_FILE: Final = "registry.db"


def registry_path(directories: Sequence[DataDirectory]) -> Path | None:
    """Returns the path of the registry in one of the claimed directories; None if a new one is to be made in the first
    of them.

    Raises UsageError where there are two, or where none is there although only some of the directories are new: the
    registry may be in one that is not mounted.
    """
    found = [path for directory in directories if is_founded(path := Path(directory.path) / REGISTRY_FILE)]
    if len(found) > 1:
        raise UsageError(
            f"log.dirs: {found[0]} and {found[1]} are both registries; move away the one that is not of this cluster"
        )
    if found:
        return found[0]
    used = [directory.path for directory in directories if directory.used]
    unused = [directory.path for directory in directories if not directory.used]
    if used and unused:
        raise UsageError(
            f"log.dirs: brokers have used {used[0]}, but never {unused[0]}, and no data directory has a "
            f"{REGISTRY_FILE}: is {unused[0]} not mounted? Mount it; if it is new or lost, leave it out of log.dirs "
            "for one start"
        )
    return None


def require_directories(
    recorded: Mapping[UUID, str], directories: Sequence[DataDirectory], lost: Collection[UUID]
) -> None:
    """Raises UsageError if a directory in the registry is not among the claimed ones, unless it is declared lost, or if
    one that is declared lost is there."""
    present = {directory.directory_id: directory.path for directory in directories}
    for directory_id in lost:
        if directory_id in present:
            raise UsageError(
                f"--lost-dir={format_topic_id(directory_id)}: it is there, at {present[directory_id]}; "
                "start without the option"
            )
    missing = {directory_id: path for directory_id, path in recorded.items() if directory_id not in present}
    undeclared = {
        format_topic_id(directory_id): path for directory_id, path in missing.items() if directory_id not in lost
    }
    if undeclared:
        names = ", ".join(f"{path} (directory.id {text})" for text, path in undeclared.items())
        options = " ".join(f"--lost-dir={text}" for text in undeclared)
        raise UsageError(
            f"log.dirs: this broker has records in {names}, which is missing: mount it, or name the path that it has "
            f"now in log.dirs. If it is lost for good, start once with {options}: partitions that were in it begin "
            "anew, empty"
        )
