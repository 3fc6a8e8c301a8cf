"""Writes and reads Fetch responses without the codec. Compiled by mypyc.

The records are never copied: a broker's response refers to slices of segment files, which the broker does not read,
and a client's to slices of the received frame. The codec writes and reads the requests. Versions 4 to 18. Source: the
protocol's Fetch schemas; KIP-227 (sessions, v7), KIP-516 (topic ids, v13), KIP-595 (diverging epoch, v12), KIP-951
(leader, v16).
"""

import struct
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from barnabas.protocol.codec import decode, encode_struct
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.primitives import Part, put_count, put_text, read_size, uvarint
from barnabas.records.file_slice import FileSlice

__all__ = [
    "FLEXIBLE_FROM",
    "SESSIONS_FROM",
    "TOPIC_IDS_FROM",
    "FetchResponse",
    "PartitionData",
    "Topic",
    "encode_fetch_response",
    "from_message",
    "read_fetch_response",
]

SESSIONS_FROM: Final = 7
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
_LOG_START_OFFSET_FROM: Final = 5
_PREFERRED_REPLICA_FROM: Final = 11

_HEAD_V4: Final = struct.Struct(">i")
_HEAD_V7: Final = struct.Struct(">ihi")
_PARTITION_V4: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_INT32: Final = struct.Struct(">i")


class PartitionData:
    """The data of one partition in a response. Its records are a FileSlice in a broker and a Part in a client."""

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "leader_id",
        "log_start_offset",
        "partition",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        partition: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: FileSlice | Part | None = None,
        aborted_transactions: Sequence[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        diverging_epoch: tuple[int, int] | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted_transactions = aborted_transactions
        """Producer ids and first offsets of aborted transactions, in the order of offsets; None for
        read_uncommitted."""
        self.preferred_read_replica = preferred_read_replica
        self.diverging_epoch = diverging_epoch
        """The epoch and its end offset."""
        self.leader_id = -1
        """The partition's current leader, with its epoch, if the error is that this broker does not lead it."""
        self.leader_epoch = -1


Topic = str | bytes | UUID
"""A topic by its name, or from version 13 on by its id."""


class FetchResponse:
    """A response as `read_fetch_response` returns it."""

    __slots__ = ("error_code", "node_endpoints", "session_id", "throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        session_id: int,
        topics: list[tuple[str | bytes, list[PartitionData]]],
        node_endpoints: Sequence[messages.NodeEndpoint] = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.topics = topics
        """The partitions of each topic, by the topic's name or from version 13 on by its id."""
        self.node_endpoints = node_endpoints
        """The addresses of the partitions' current leaders."""


def encode_fetch_response(
    topics: Sequence[tuple[Topic, Sequence[PartitionData]]],
    version: int,
    prefix: bytes,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    brokers: Sequence[tuple[int, str, int, str | None]] = (),
) -> list[bytes | FileSlice]:
    """Returns the parts of the body: `prefix` (the frame's header, whose size the caller fills in) and all that
    follows.

    Topics are named by their ids from version 13 on, by their names before. `brokers` are node id, host, port and rack
    of the partitions' current leaders, from version 16 on (KIP-951).
    """
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(prefix)
    parts: list[bytes | FileSlice] = []
    if version >= SESSIONS_FROM:
        out += _HEAD_V7.pack(throttle_time_ms, error_code, session_id)
    else:
        out += _HEAD_V4.pack(throttle_time_ms)
    put_count(out, len(topics), flexible)
    for topic, partitions in topics:
        if isinstance(topic, str):
            put_text(out, topic, flexible)
        else:
            out += topic if isinstance(topic, bytes) else topic.bytes
        put_count(out, len(partitions), flexible)
        for partition in partitions:
            _put_partition_head(out, partition, version, flexible)
            records = partition.records
            size = 0 if records is None else records.size if isinstance(records, FileSlice) else len(records)
            # Clients refuse null here: no records are zero bytes of records.
            put_count(out, size, flexible)
            if size:
                assert isinstance(records, FileSlice)
                parts.append(bytes(out))
                parts.append(records)
                out = bytearray()
            if flexible:
                _put_partition_tags(out, partition)
        if flexible:
            out.append(0)
    if brokers:
        _put_brokers(out, brokers, version)
    elif flexible:
        out.append(0)
    if out:
        parts.append(bytes(out))
    return parts


def _put_brokers(out: bytearray, brokers: Sequence[tuple[int, str, int, str | None]], version: int) -> None:
    found = bytearray()
    put_count(found, len(brokers), True)
    for node_id, host, port, rack in brokers:
        endpoint = messages.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        found += encode_struct(endpoint, version, flexible=True)
    out += b"\x01\x00"  # one field, tag 0
    out += uvarint(len(found))
    out += found


def _put_partition_head(out: bytearray, data: PartitionData, version: int, flexible: bool) -> None:
    index, code, high_watermark, stable = data.partition, data.error_code, data.high_watermark, data.last_stable_offset
    if version >= _LOG_START_OFFSET_FROM:
        out += _PARTITION_V5.pack(index, code, high_watermark, stable, data.log_start_offset)
    else:
        out += _PARTITION_V4.pack(index, code, high_watermark, stable)
    aborted = data.aborted_transactions
    if aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        put_count(out, len(aborted), flexible)
        for producer_id, first_offset in aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                out.append(0)
    if version >= _PREFERRED_REPLICA_FROM:
        out += _INT32.pack(data.preferred_read_replica)


def _put_partition_tags(out: bytearray, data: PartitionData) -> None:
    has_leader = data.leader_epoch >= 0
    if data.diverging_epoch is None:
        if not has_leader:
            out.append(0)
            return
        out.append(1)
    else:
        out.append(2 if has_leader else 1)
        epoch, end_offset = data.diverging_epoch
        out += b"\x00\x0d"  # tag 0, 13 bytes
        out += struct.pack(">iq", epoch, end_offset)
        out.append(0)
    if has_leader:
        out += b"\x01\x09"  # tag 1, 9 bytes
        out += struct.pack(">ii", data.leader_id, data.leader_epoch)
        out.append(0)


def read_fetch_response(data: bytes, position: int, version: int) -> FetchResponse:
    """Returns the response whose body starts at `position`. Records are not copied. Raises MalformedMessage."""
    if version >= FLEXIBLE_FROM:
        try:
            response = _read_usual(data, position, by_id=version >= TOPIC_IDS_FROM)
        except (struct.error, IndexError, UnicodeDecodeError):
            response = None  # the codec raises the error
        if response is not None:
            return response
    return from_message(decode(messages.FetchResponse, version, data, position, parts=True)[0])


def _read_usual(data: bytes, position: int, *, by_id: bool) -> FetchResponse | None:
    """Returns a response without tagged fields and aborted transactions; None if it has any, or is incomplete."""
    throttle_ms, error_code, session_id = _HEAD_V7.unpack_from(data, position)
    position += 10
    topics: list[tuple[str | bytes, list[PartitionData]]] = []
    count, position = read_size(data, position)
    for _ in range(count):
        topic: str | bytes
        if by_id:
            topic = data[position : position + 16]
            position += 16
        else:
            size, position = read_size(data, position)
            topic = data[position : position + size].decode()
            position += size
        partitions: list[PartitionData] = []
        partition_count, position = read_size(data, position)
        for _ in range(partition_count):
            index, code, high_watermark, stable, start = _PARTITION_V5.unpack_from(data, position)
            position += 30
            if data[position] > 1:
                return None
            (preferred,) = _INT32.unpack_from(data, position + 1)
            position += 5
            records: Part | None = None
            if data[position]:
                size, position = read_size(data, position)
                records = Part(data, position, position + size)
                position += size
            else:
                position += 1
            if data[position]:  # beyond the end of data: IndexError
                return None
            position += 1
            partitions.append(PartitionData(index, code, high_watermark, stable, start, records, None, preferred))
        if data[position]:
            return None
        position += 1
        topics.append((topic, partitions))
    return None if data[position] else FetchResponse(throttle_ms, error_code, session_id, topics)


def from_message(response: messages.FetchResponse) -> FetchResponse:
    """Returns the response that the codec has read with `parts`."""
    topics: list[tuple[str | bytes, list[PartitionData]]] = [
        (topic.topic or topic.topic_id.bytes, [_partition_of(each) for each in topic.partitions])
        for topic in response.responses
    ]
    return FetchResponse(
        response.throttle_time_ms, response.error_code, response.session_id, topics, response.node_endpoints
    )


def _partition_of(message: Any) -> PartitionData:  # its records are a Part, in spite of the annotation
    data = PartitionData(
        message.partition_index,
        message.error_code,
        message.high_watermark,
        message.last_stable_offset,
        message.log_start_offset,
        message.records,
        [(each.producer_id, each.first_offset) for each in message.aborted_transactions or ()],
        message.preferred_read_replica,
    )
    if message.diverging_epoch.epoch >= 0:
        data.diverging_epoch = (message.diverging_epoch.epoch, message.diverging_epoch.end_offset)
    data.leader_id, data.leader_epoch = message.current_leader.leader_id, message.current_leader.leader_epoch
    return data
