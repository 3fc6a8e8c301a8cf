"""Fetch responses on the wire, by hand: bytes around slices of segment files, which nobody reads.

Versions 4 to 18. Requests are read by the codec. Source: the protocol's Fetch schemas; KIP-227 (sessions, v7),
KIP-516 (topic ids, v13), KIP-595 (diverging epoch, v12).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.protocol.codec import uvarint
from barnabas.records.file_slice import FileSlice

__all__ = ["FLEXIBLE_FROM", "TOPIC_IDS_FROM", "PartitionData", "encode_fetch_response"]

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
SESSIONS_FROM: Final = 7
_LOG_START_OFFSET_FROM: Final = 5
_PREFERRED_REPLICA_FROM: Final = 11

_PARTITION_V4: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_HEAD_V4: Final = struct.Struct(">i")
_HEAD_V7: Final = struct.Struct(">ihi")
_ABORTED: Final = struct.Struct(">qq")
_INT32: Final = struct.Struct(">i")


class PartitionData(NamedTuple):
    """One partition's part of a response."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: FileSlice | None = None
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) in the order of offsets; None for read_uncommitted."""
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset)"""


def encode_fetch_response(
    topics: Sequence[tuple[str, UUID | None, Sequence[PartitionData]]],
    version: int,
    prefix: bytes,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
) -> list[bytes | FileSlice]:
    """The parts of the body: `prefix` (the frame's header, whose size the caller fills in) and all that follows."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(prefix)
    parts: list[bytes | FileSlice] = []
    if version >= SESSIONS_FROM:
        out += _HEAD_V7.pack(throttle_time_ms, error_code, session_id)
    else:
        out += _HEAD_V4.pack(throttle_time_ms)
    out += uvarint(len(topics) + 1) if flexible else _INT32.pack(len(topics))
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None
            out += topic_id.bytes
        else:
            data = name.encode()
            out += uvarint(len(data) + 1) if flexible else len(data).to_bytes(2, "big")
            out += data
        out += uvarint(len(partitions) + 1) if flexible else _INT32.pack(len(partitions))
        for partition in partitions:
            _put_partition_head(out, partition, version, flexible)
            records = partition.records
            size = 0 if records is None else records.size
            # Clients refuse null here: no records are zero bytes of records.
            out += uvarint(size + 1) if flexible else _INT32.pack(size)
            if records is not None and size:
                parts.append(bytes(out))
                parts.append(records)
                out = bytearray()
            if flexible:
                _put_partition_tags(out, partition)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    if out:
        parts.append(bytes(out))
    return parts


def _put_partition_head(out: bytearray, partition: PartitionData, version: int, flexible: bool) -> None:
    if version >= _LOG_START_OFFSET_FROM:
        out += _PARTITION_V5.pack(*partition[:5])
    else:
        out += _PARTITION_V4.pack(*partition[:4])
    aborted = partition.aborted_transactions
    if flexible:
        out += b"\0" if aborted is None else uvarint(len(aborted) + 1)
        for transaction in aborted or ():
            out += _ABORTED.pack(*transaction)
            out.append(0)
    else:
        out += _INT32.pack(-1 if aborted is None else len(aborted))
        for transaction in aborted or ():
            out += _ABORTED.pack(*transaction)
    if version >= _PREFERRED_REPLICA_FROM:
        out += _INT32.pack(partition.preferred_read_replica)


def _put_partition_tags(out: bytearray, partition: PartitionData) -> None:
    if partition.diverging_epoch is None:
        out.append(0)
        return
    epoch, end_offset = partition.diverging_epoch
    out += b"\x01\x00\x0d"  # one field, tag 0, 13 bytes
    out += struct.pack(">iq", epoch, end_offset)
    out.append(0)
