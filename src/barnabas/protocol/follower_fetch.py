"""The body of a follower's Fetch request (v15-v18), written and read by hand: the most frequent request of brokers.

Source: Kafka's message schemas; KIP-903 (the state of the replica, v15).
"""

import struct
from typing import Final

from barnabas.protocol.codec import decode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.primitives import put_count, read_size

__all__ = ["FOLLOWERS_FROM", "FollowerFetchRequest", "WantedPartition", "encode_follower_fetch", "read_follower_fetch"]

FOLLOWERS_FROM: Final = 15
"""The first version with the epoch of the follower's registration. No release sends an older one."""

_HEAD: Final = struct.Struct(">iiibii")
"""The wait, the smallest and the largest number of bytes, the isolation level, the session and its epoch."""
_PARTITION: Final = struct.Struct(">iiqiqi")
_REPLICA: Final = struct.Struct(">iq")
_INT32: Final = struct.Struct(">i")
_REPLICA_TAG: Final = b"\1\1\x0d"
"""One tagged field: number 1, of 13 bytes."""

WantedPartition = tuple[bytes, int, int, int, int, int, int]
"""The topic id, the partition's number, the leader epoch, the fetch offset, the epoch of the follower's last batch, its
log start offset, and the largest number of bytes."""


class FollowerFetchRequest:
    """A request of a follower; of a consumer, if there is no replica id."""

    __slots__ = (
        "forgotten",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "partitions",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
    )

    def __init__(
        self,
        replica_id: int,
        replica_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        session_id: int,
        session_epoch: int,
        partitions: list[WantedPartition],
        forgotten: list[tuple[bytes, int]],
    ) -> None:
        """`forgotten` are topic ids and numbers of partitions that leave the session."""
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.partitions = partitions
        self.forgotten = forgotten


def encode_follower_fetch(request: FollowerFetchRequest) -> bytearray:
    """Returns the body."""
    out = bytearray(
        _HEAD.pack(
            request.max_wait_ms, request.min_bytes, request.max_bytes, 0, request.session_id, request.session_epoch
        )
    )
    topics: dict[bytes, list[WantedPartition]] = {}
    for partition in request.partitions:
        topics.setdefault(partition[0], []).append(partition)
    put_count(out, len(topics), True)
    for topic_id, partitions in topics.items():
        out += topic_id
        put_count(out, len(partitions), True)
        for _, number, leader_epoch, offset, last_epoch, start, max_bytes in partitions:
            out += _PARTITION.pack(number, leader_epoch, offset, last_epoch, start, max_bytes)
            out.append(0)
        out.append(0)
    forgotten: dict[bytes, list[int]] = {}
    for topic_id, number in request.forgotten:
        forgotten.setdefault(topic_id, []).append(number)
    put_count(out, len(forgotten), True)
    for topic_id, numbers in forgotten.items():
        out += topic_id
        put_count(out, len(numbers), True)
        for number in numbers:
            out += _INT32.pack(number)
        out.append(0)
    out.append(1)  # no rack
    out += _REPLICA_TAG
    out += _REPLICA.pack(request.replica_id, request.replica_epoch)
    out.append(0)
    return out


def read_follower_fetch(data: bytes, version: int) -> FollowerFetchRequest:
    """Returns the request with this body. Raises MalformedMessage."""
    try:
        request = _read_usual(data)
    except (struct.error, IndexError):
        request = None  # the codec raises the error
    return request or _from_message(decode(FetchRequest, version, data)[0])


def _read_usual(data: bytes) -> FollowerFetchRequest | None:
    """Returns a request as `encode_follower_fetch` writes it; None if it has other tagged fields, or is incomplete."""
    max_wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = _HEAD.unpack_from(data, 0)
    position = 21
    partitions: list[WantedPartition] = []
    forgotten: list[tuple[bytes, int]] = []
    count, position = read_size(data, position)
    for _ in range(count):
        topic_id = data[position : position + 16]
        position += 16
        partition_count, position = read_size(data, position)
        for _ in range(partition_count):
            number, leader_epoch, offset, last_epoch, start, limit = _PARTITION.unpack_from(data, position)
            position += 32
            if data[position]:
                return None
            position += 1
            partitions.append((topic_id, number, leader_epoch, offset, last_epoch, start, limit))
        if data[position]:
            return None
        position += 1
    count, position = read_size(data, position)
    for _ in range(count):
        topic_id = data[position : position + 16]
        position += 16
        partition_count, position = read_size(data, position)
        for _ in range(partition_count):
            (number,) = _INT32.unpack_from(data, position)
            position += 4
            forgotten.append((topic_id, number))
        if data[position]:
            return None
        position += 1
    size, position = read_size(data, position)
    position += size
    if data[position : position + 3] != _REPLICA_TAG or len(data) != position + 16 or data[position + 15]:
        return None
    replica_id, replica_epoch = _REPLICA.unpack_from(data, position + 3)
    return FollowerFetchRequest(
        replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, partitions, forgotten
    )


def _from_message(message: FetchRequest) -> FollowerFetchRequest:
    return FollowerFetchRequest(
        message.replica_state.replica_id,
        message.replica_state.replica_epoch,
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.session_id,
        message.session_epoch,
        [
            (
                topic.topic_id.bytes,
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
            )
            for topic in message.topics
            for each in topic.partitions
        ],
        [(topic.topic_id.bytes, number) for topic in message.forgotten_topics_data for number in topic.partitions],
    )
