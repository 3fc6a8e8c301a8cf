"""Reads topics and settings from Kafka's own registry, the log `__cluster_metadata-0`.

Read once, when a broker takes over a directory of Kafka's; never written. Five of some thirty kinds of records are
used. Source: metadata/src/main/resources/common/metadata; KIP-630 (snapshots: the newest `.checkpoint`, then the log
from its offset on).
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.errors import CorruptMessage
from barnabas.log.directories.data_directory import METADATA_TOPIC
from barnabas.protocol.codec import MalformedMessage
from barnabas.protocol.primitives import read_uvarint
from barnabas.records.batch import iter_batches
from barnabas.records.reader import read_records

__all__ = ["KraftMetadata", "read_kraft_metadata"]

_TOPIC: Final = 2
_PARTITION: Final = 3
_CONFIG: Final = 4
_REMOVE_TOPIC: Final = 9
_PRODUCER_IDS: Final = 15

_OF_TOPIC: Final = 2
_OF_BROKER: Final = 4
"""Kinds of resources that have settings (ConfigResource.Type)."""

_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_SEGMENT: Final = re.compile(r"\d{20}\.log")
_PARTITION_HEAD: Final = Struct(">i16s")
_NEXT_PRODUCER_ID: Final = Struct(">iqq")


class KraftMetadata:
    """The topics by their ids, and the settings by resource; partitions with more replicas than one are counted."""

    def __init__(self) -> None:
        self.topic_names: dict[UUID, str] = {}
        self.partitions: dict[UUID, dict[int, int]] = {}
        """The number of replicas by topic and partition, as it was when the partition was made."""
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0

    def replay(self, value: bytes) -> None:
        """Applies one record. Raises MalformedMessage, IndexError or UnicodeDecodeError for an invalid one."""
        _, position = read_uvarint(value, 0)
        kind, position = read_uvarint(value, position)
        _, position = read_uvarint(value, position)
        if kind == _TOPIC:
            name, position = _text(value, position)
            self.topic_names[UUID(bytes=_sized(value, position, 16))] = name
        elif kind == _PARTITION:
            index, topic_id = _PARTITION_HEAD.unpack(_sized(value, position, _PARTITION_HEAD.size))
            replicas, _ = read_uvarint(value, position + _PARTITION_HEAD.size)
            self.partitions.setdefault(UUID(bytes=topic_id), {})[index] = replicas - 1
        elif kind == _CONFIG:
            self._replay_config(value, position)
        elif kind == _REMOVE_TOPIC:
            topic_id = UUID(bytes=_sized(value, position, 16))
            self.partitions.pop(topic_id, None)
            self.topic_configs.pop(self.topic_names.pop(topic_id, ""), None)
        elif kind == _PRODUCER_IDS:
            _, _, self.next_producer_id = _NEXT_PRODUCER_ID.unpack(_sized(value, position, _NEXT_PRODUCER_ID.size))

    def _replay_config(self, value: bytes, position: int) -> None:
        resource_type = value[position]
        resource, position = _text(value, position + 1)
        setting, position = _text(value, position)
        configs = {_OF_TOPIC: self.topic_configs, _OF_BROKER: self.broker_configs}.get(resource_type)
        if configs is None:
            return
        settings = configs.setdefault(resource, {})
        if value[position]:
            settings[setting] = _text(value, position)[0]
        else:
            settings.pop(setting, None)


def _sized(value: bytes, position: int, size: int) -> bytes:
    if position + size > len(value):
        raise MalformedMessage(f"{size} bytes asked for at {position}, the record has {len(value)}")
    return value[position : position + size]


def _text(value: bytes, position: int) -> tuple[str, int]:
    size, position = read_uvarint(value, position)
    return _sized(value, position, size - 1).decode(), position + size - 1


def read_kraft_metadata(data_dirs: Iterable[str]) -> KraftMetadata | None:
    """Reads the metadata in the first of these directories that has such a log; None if none has.

    A torn end is left out, as Kafka would cut it. Raises CorruptMessage for a snapshot that cannot be read, OSError.
    """
    for data_dir in data_dirs:
        directory = Path(data_dir) / f"{METADATA_TOPIC}-0"
        if directory.is_dir():
            return _read(directory)
    return None


def _read(directory: Path) -> KraftMetadata:
    names = sorted(os.listdir(directory))
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    segments = [name for name in names if _SEGMENT.fullmatch(name)]
    start = int(snapshots[-1][:20]) if snapshots else 0
    if not segments or int(segments[0][:20]) > start:
        raise CorruptMessage(f"{directory} lacks the records before offset {segments[0][:20] if segments else 0}")
    metadata = KraftMetadata()
    try:
        for name in snapshots[-1:]:
            for _, value in _values(directory / name):
                metadata.replay(value)
        for offset, value in _until_damage(directory, segments):
            if offset >= start:
                metadata.replay(value)
    except (MalformedMessage, IndexError, UnicodeDecodeError) as error:
        raise CorruptMessage(f"{directory}: {error}") from None
    return metadata


def _until_damage(directory: Path, segments: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    with contextlib.suppress(CorruptMessage):
        for name in segments:
            yield from _values(directory / name)


def _values(path: Path) -> Iterator[tuple[int, bytes]]:
    for header, batch in iter_batches(path.read_bytes()):
        if not header.is_control:
            for record in read_records(batch):
                yield record.offset, record.value or b""
