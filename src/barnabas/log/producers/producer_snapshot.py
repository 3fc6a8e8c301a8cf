"""Reads and writes `.snapshot` files: the state of a log's producers at an offset, in Kafka's format.

version i16 (1), CRC-32C u32 of all that follows, count i32, then per producer: producer_id i64, epoch i16,
last_sequence i32, last_offset i64, offset_delta i32, timestamp i64, coordinator_epoch i32, current_txn_first_offset
i64. The timestamp tells when a producer expires. Kafka writes the one of the producer's records there, we the time of
their append.
"""

import os
from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas.log.directories.checkpoints import replace_file
from barnabas.records.checksum import crc32c
from barnabas.types import Offset, ProducerId

__all__ = ["SNAPSHOT_SUFFIX", "CorruptSnapshot", "SnapshotEntry", "read_snapshot", "snapshot_offsets", "write_snapshot"]

SNAPSHOT_SUFFIX: Final = ".snapshot"
_VERSION: Final = 1
_HEADER: Final = Struct(">hIi")
_CHECKED_POSITION: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")
_COUNT: Final = Struct(">i")


class CorruptSnapshot(Exception):
    """A snapshot is of an unknown version, cut off or fails its checksum."""


class SnapshotEntry(NamedTuple):
    """A producer. -1 means none in last_sequence, last_offset and current_txn_first_offset."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: Offset


def read_snapshot(path: str) -> list[SnapshotEntry]:
    """Reads the entries of a snapshot file. Raises CorruptSnapshot, FileNotFoundError."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        version, crc, count = _HEADER.unpack_from(data)
        if version != _VERSION:
            raise CorruptSnapshot(f"{path}: version {version}, expected {_VERSION}")
        if crc != crc32c(data[_CHECKED_POSITION:]):
            raise CorruptSnapshot(f"{path}: the checksum does not fit")
        if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
            raise CorruptSnapshot(f"{path}: {len(data)} bytes cannot hold {count} producers")
        return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :])]
    except struct_error as error:
        raise CorruptSnapshot(f"{path}: {error}") from error


def write_snapshot(path: str, entries: Iterable[SnapshotEntry], *, sync: bool = False) -> None:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    header = _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big")
    replace_file(path, header + body, sync=sync)


def snapshot_offsets(directory: str) -> list[Offset]:
    """Returns the offsets of the snapshot files in a log directory, smallest first."""
    names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in os.listdir(directory) if name.endswith(SNAPSHOT_SUFFIX))
    return sorted(Offset(int(name)) for name in names if name.isdigit())
