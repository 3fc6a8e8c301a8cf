"""Compares the replicas of a partition by the bytes of their segment files."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

__all__ = ["Batch", "batches", "difference", "log_bytes"]

HEADER_BYTES = 61
LENGTH_END = 12


class Batch(NamedTuple):
    """A record batch in a segment file."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    content: bytes

    def __str__(self) -> str:
        return f"offsets {self.base_offset} to {self.last_offset} in epoch {self.leader_epoch}"


def log_bytes(*directories: Path) -> bytes:
    """Returns all batches of a replica, which lies in one of these. Replicas may begin new segments at different
    places: that is no difference."""
    return b"".join(path.read_bytes() for each in directories for path in sorted(each.glob("*.log")))


def batches(data: bytes) -> list[Batch]:
    """Raises ValueError where the bytes are no whole batches in the order of their offsets."""
    found: list[Batch] = []
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_BYTES:
            raise ValueError(f"{len(data) - position} bytes at the end are no batch")
        base_offset, length, leader_epoch = struct.unpack_from(">qii", data, position)
        (last_offset_delta,) = struct.unpack_from(">i", data, position + 23)
        end = position + LENGTH_END + length
        if length < HEADER_BYTES - LENGTH_END or end > len(data):
            raise ValueError(f"the batch at byte {position} (offset {base_offset}) has the length {length}")
        if found and base_offset != found[-1].last_offset + 1:
            raise ValueError(f"offset {base_offset} follows offset {found[-1].last_offset}")
        found.append(Batch(base_offset, base_offset + last_offset_delta, leader_epoch, data[position:end]))
        position = end
    return found


def difference(replicas: Mapping[int, bytes]) -> str | None:
    """Returns what distinguishes the logs of some brokers, None if all have the same bytes."""
    (first, expected), *others = sorted(replicas.items())
    for broker, found in others:
        if found != expected:
            return f"brokers {first} and {broker}: {_first_difference(expected, found)}"
    return None


def _first_difference(one: bytes, other: bytes) -> str:
    try:
        pairs = zip_longest(batches(one), batches(other))
    except ValueError as error:
        return str(error)
    for mine, theirs in pairs:
        if mine != theirs:
            what = "other bytes" if mine and theirs and mine[:3] == theirs[:3] else "other batches"
            return f"{what}: {mine or 'the end'} / {theirs or 'the end'}"
    return "no batch differs"
