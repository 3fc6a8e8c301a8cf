"""Checks before the start that the registry is not older than what the data directories have seen of it.

A registry that was put back from a copy would give leader epochs and producer ids out a second time: replicas would
differ in silence, and records be taken for duplicates of others. The copy of the metadata in each data directory tells
the version of the registry that this broker has known at least, and each log a leader epoch that was given out.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.errors import CorruptMessage, UsageError
from barnabas.log.directories.checkpoints import METADATA_COPY
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.image import MetadataImage
from barnabas.registry.registry import Registry, RegistryOutdated
from barnabas.types import TopicPartition

__all__ = ["image_not_older_than_copies", "refuse_epochs_not_given"]

_TWICE: Final = "it would give leader epochs and producer ids out twice"
_log = logging.getLogger("barnabas.broker")


def image_not_older_than_copies(
    registry: Registry, image: MetadataImage, directories: Iterable[str], way_out: str
) -> MetadataImage:
    """Returns the image, which was read from the registry and is read again if a copy of the metadata in a data
    directory is newer. Raises UsageError if the registry is certainly older than that."""
    for directory in directories:
        path = Path(directory) / METADATA_COPY
        if not path.exists():
            continue
        from barnabas.broker.cluster.metadata_copy import read_version

        try:
            seen = read_version(path)
        except (OSError, CorruptMessage) as error:
            _log.warning("%s says nothing about the age of the registry: %s", path, error)
            continue
        if seen.cluster_id == image.cluster_id:
            registry.note_version(seen.version, seen.controller_epoch)
            try:
                image = registry.load(image).image
            except RegistryOutdated as error:
                raise UsageError(f"{error}, as {path} tells; {_TWICE}; {way_out}") from None
    return image


def refuse_epochs_not_given(
    image: MetadataImage, logs: Mapping[TopicPartition, UnifiedLog], name: str, way_out: str
) -> None:
    """Raises UsageError if a log has records of a leader epoch that the registry of that name has not given out yet."""
    for topic_partition, log in logs.items():
        partition, latest = image.partition(*topic_partition), log.leader_epochs.latest
        if partition is not None and latest > partition.leader_epoch:
            raise UsageError(
                f"the registry {name} is at leader epoch {partition.leader_epoch} of {topic_partition}, but "
                f"{log.directory} has records of epoch {latest}: it was put back from a copy; {_TWICE}; {way_out}"
            )
