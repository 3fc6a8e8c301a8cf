"""The few requests that measurements send themselves, in their oldest served and simplest encodings.

Written by hand and without Barnabas' own wire code, so that the yardstick does not share its faults.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS = 1, 11, 12, 13, 14, 18
DESCRIBE_QUORUM = 55
FETCH_VERSION = 4
BATCH_OVERHEAD = 12
LAST_OFFSET_DELTA_AT = 23


class Reader:
    """Reads Kafka's primitive types off a response body."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.data = data
        self.position = position

    def int16(self) -> int:
        return int(self._unpack(">h", 2))

    def int32(self) -> int:
        return int(self._unpack(">i", 4))

    def int64(self) -> int:
        return int(self._unpack(">q", 8))

    def string(self) -> str:
        length = self.int16()
        return bytes(self._take(length)).decode() if length >= 0 else ""

    def data_bytes(self) -> memoryview:
        length = self.int32()
        return self._take(max(length, 0))

    def _take(self, length: int) -> memoryview:
        start = self.position
        self.position += length
        return memoryview(self.data)[start : self.position]

    def _unpack(self, layout: str, size: int) -> int:
        (value,) = struct.unpack_from(layout, self.data, self.position)
        self.position += size
        return int(value)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def data_bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole request with header version 1."""
    header = struct.pack(">hhi", api_key, version, correlation_id) + string("bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


def fetch_body(topic: str, offsets: Mapping[int, int], partition_max_bytes: int, max_wait_ms: int = 100) -> bytes:
    """A Fetch request (version 4) for partitions of one topic."""
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 30, 0) + struct.pack(">i", 1) + string(topic)
    body += struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iqi", partition, offset, partition_max_bytes)
    return body


def fetched_ranges(body: memoryview) -> dict[int, tuple[int, int]]:
    """Partition to (next offset, bytes of record data) of a Fetch response of version 4."""
    reader = Reader(body)
    reader.int32()  # throttle time
    ranges = {}
    for _ in range(reader.int32()):
        reader.string()
        for _ in range(reader.int32()):
            partition, error = reader.int32(), reader.int16()
            if error:
                raise OSError(f"Fetch of partition {partition} answered error {error}")
            reader.position += 16  # high watermark, last stable offset
            for _ in range(max(reader.int32(), 0)):
                reader.position += 16  # aborted transactions
            records = reader.data_bytes()
            ranges[partition] = (_next_offset(records), len(records))
    return ranges


def _next_offset(records: memoryview) -> int:
    """Offset after the last whole batch, -1 when there is none."""
    position, after = 0, -1
    while position + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        if position + BATCH_OVERHEAD + length > len(records):
            break
        (delta,) = struct.unpack_from(">i", records, position + LAST_OFFSET_DELTA_AT)
        after = base_offset + delta + 1
        position += BATCH_OVERHEAD + length
    return after


def quorum_leader(connection: socket.socket) -> int:
    """Asks for the leader of Apache Kafka's metadata log (DescribeQuorum, version 0). Raises ValueError without one."""
    name = b"__cluster_metadata"
    tags, one, compact_name = b"\0", b"\2", bytes([len(name) + 1]) + name
    body = tags + one + compact_name + one + struct.pack(">i", 0) + 3 * tags
    answer = Reader(call(connection, frame(DESCRIBE_QUORUM, 0, 1, body)))
    answer.position = bytes(answer.data).index(name) + len(name) + 1 + 4  # the length of an array, the partition
    error, leader = answer.int16(), answer.int32()
    if error or leader < 0:
        raise ValueError(f"no leader of {name.decode()}: error {error}")
    return leader


def receive_exactly(connection: socket.socket, buffer: memoryview) -> None:
    """Fills ``buffer``; a connection that ends before raises ``ConnectionError``."""
    received = 0
    while received < len(buffer):
        count = connection.recv_into(buffer[received:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        received += count


def call(connection: socket.socket, request: bytes) -> memoryview:
    """Sends one frame and returns the body of the next response (after its correlation id)."""
    connection.sendall(request)
    size = bytearray(4)
    receive_exactly(connection, memoryview(size))
    body = memoryview(bytearray(int.from_bytes(size, "big")))
    receive_exactly(connection, body)
    return body[4:]
