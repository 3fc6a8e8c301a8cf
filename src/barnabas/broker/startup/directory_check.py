"""Checks before the start that every data directory of this broker is there.

A directory that is not mounted looks like an empty one. Partitions made anew in it would begin at offset 0, beside
their records of before. So the registry records the `directory.id` of each data directory, and a broker starts only
with all of them, wherever they are mounted, when others have the replicas (`directory_age.py`), or when the operator
declares one lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import UUID

from barnabas.errors import DirectoryUnusable, UsageError
from barnabas.log.directories.checkpoints import META_PROPERTIES, METADATA_COPY, format_topic_id
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.registry.embedded_tables import is_founded

__all__ = [
    "OTHERS",
    "REGISTRY_FILE",
    "MissingDirectories",
    "as_options",
    "broker_directories",
    "how_to_restore",
    "refuse_missing",
    "registry_path",
]

REGISTRY_FILE: Final = "registry.db"
OTHERS: Final = "brokers"
"""The directory for the brokers that have joined one that had run alone."""


class MissingDirectories(DirectoryUnusable):
    """Data directories in the registry are missing: `paths` by their ids."""

    def __init__(self, message: str, paths: Mapping[UUID, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.paths = dict(paths)


def registry_path(directories: Sequence[DataDirectory], shared: str | None = None) -> Path | None:
    """Returns the path of the registry: `shared`, the setting registry.file, or the one in a claimed directory. None if
    a new one is to be made in the first of them.

    Raises UsageError where there are two, or where none is there although only some of the directories are new: the
    registry may be in one that is not mounted. The same if a shared one is missing, but a directory has been used, if
    a broker has kept a copy of the metadata in it, or if it is that of a whole cluster, and for an empty file.
    """
    if shared is not None:
        return _shared_registry(Path(shared), directories)
    found = [path for directory in directories if is_founded(path := Path(directory.path) / REGISTRY_FILE)]
    if len(found) > 1:
        raise UsageError(
            f"log.dirs: {found[0]} and {found[1]} are both registries; move away the one that is not of this cluster"
        )
    if not any(directory.used for directory in directories):
        _refuse_whole_cluster([directory.path for directory in directories], has_registry=bool(found))
    if found:
        return found[0]
    # a first start that failed at the second directory, or was killed, leaves the first with an identity and no more
    used = [directory.path for directory in directories if directory.used and not directory.was_never_opened()]
    unused = [directory.path for directory in directories if not directory.used]
    if used and unused:
        raise UsageError(
            f"log.dirs: brokers have used {used[0]}, but never {unused[0]}, and no data directory has a "
            f"{REGISTRY_FILE}: is {unused[0]} not mounted? Mount it; if it is new or lost, leave it out of log.dirs "
            "for one start"
        )
    for directory in directories:
        path = Path(directory.path)
        if (path / METADATA_COPY).exists() or broker_directories(str(path / OTHERS)):
            how = how_to_restore(path / REGISTRY_FILE, used)
            raise UsageError(f"log.dirs: {directory.path} belongs to a broker whose registry is missing: {how}")
    _refuse_emptied(directories)
    return None


def _refuse_emptied(directories: Sequence[DataDirectory]) -> None:
    """Raises UsageError for the file of a registry that has had content, as a registration of before tells. Of Kafka's
    directories it may be one that a first start could not complete."""
    emptied = [path for directory in directories if (path := Path(directory.path) / REGISTRY_FILE).exists()]
    if emptied and any(directory.mark.broker_epoch >= 0 for directory in directories):
        raise UsageError(
            f"log.dirs: {emptied[0]} is empty, but had the registry of this broker: if that is elsewhere, name it with "
            "--registry. If it is lost, move the empty file away: a start makes a new one from the logs, as no data "
            "directory has a copy of the metadata"
        )


def broker_directories(parent: str) -> dict[int, str]:
    """Returns the directories below this one that `serve --brokers` gave to brokers which have used them, by the ids of
    these."""
    found = {
        int(path.name.removeprefix("broker-")): str(path)
        for path in Path(parent).glob("broker-[1-9]*")
        if path.name.removeprefix("broker-").isdecimal() and (path / META_PROPERTIES).exists()
    }
    return dict(sorted(found.items()))


def _refuse_whole_cluster(paths: Sequence[str], *, has_registry: bool) -> None:
    """Raises UsageError if brokers of `serve --brokers` have used directories below these: one that begins here would
    know nothing of them."""
    found = [each for path in paths for each in broker_directories(path).items()]
    if not found:
        return
    directories = [directory for _, directory in found]
    way_out = f"start all of it by `barnabas serve --brokers {max(found)[0]} {as_options(paths)}`"
    if not has_registry:
        registry = Path(paths[0]) / REGISTRY_FILE
        way_out = f"its registry is missing: {how_to_restore(registry, directories)}, and {way_out}"
    raise UsageError(f"log.dirs: {directories[0]} belongs to a broker of a cluster of several; {way_out}")


def how_to_restore(registry: Path, directories: Sequence[str]) -> str:
    """Returns the ways out for brokers that have used these directories, and whose registry is missing."""
    return (
        "name the one that they had with --registry, or, if it is lost, restore it by `barnabas cluster recover "
        f"--registry {registry} {as_options(directories)}`"
    )


def as_options(directories: Iterable[str]) -> str:
    """Returns the directories as options of a command."""
    return " ".join(f"--data-dir {directory}" for directory in directories)


def _shared_registry(path: Path, directories: Sequence[DataDirectory]) -> Path:
    """Checks that no broker founds a cluster upon the replicas of another one, which would be without the others."""
    used = next((directory.path for directory in directories if directory.used), None)
    if used is not None and not is_founded(path):
        raise UsageError(
            f"registry.file: {path} is not there or empty, but brokers have used {used}: name the registry of its "
            "cluster, or restore it by `barnabas cluster recover`"
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(f"registry.file: the directory of {path} does not exist; create it first")
    return path.absolute()


def refuse_missing(missing: Mapping[UUID, str]) -> MissingDirectories:
    """Returns the error of a start without these data directories, of whose replicas nobody else has all records."""
    names = ", ".join(f"{path} (directory.id {format_topic_id(key)})" for key, path in missing.items())
    options = " ".join(f"--lost-dir={format_topic_id(directory_id)}" for directory_id in missing)
    return MissingDirectories(
        f"log.dirs: this broker has records in {names}, which is missing: mount it, or name the path that it has "
        f"now in log.dirs. If it is lost for good, start once with {options}: partitions that were in it begin "
        "anew, empty",
        missing,
    )
