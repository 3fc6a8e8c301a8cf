"""Produce on the wire, by hand: the records stay views into the received frame, the usual response is one pack.

Versions 3 to 13. Budget: reading a request of one partition under 4 µs, writing its response under 2 µs.
Source: the protocol's Produce schemas; KIP-516 (topic ids, v13), KIP-467 (record errors, v8), KIP-951 (leader, v10).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.protocol.codec import (
    REQUEST_ELEMENTS_MAX,
    MalformedMessage,
    TooManyElements,
    put_compact_text,
    put_legacy_text,
    read_uvarint,
    uvarint,
)

__all__ = [
    "PartitionResult",
    "ProduceRequest",
    "ProducedTopic",
    "SinglePartition",
    "encode_produce_response",
    "read_produce_request",
]

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
_RECORD_ERRORS_FROM: Final = 8
_LOG_START_OFFSET_FROM: Final = 5

_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX_SIZE: Final = struct.Struct(">ii")
_RESULT_V3: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")


class ProducedTopic(NamedTuple):
    """One topic of a request: by name up to v12, by id from v13 on."""

    name: str
    topic_id: UUID | None
    partitions: list[tuple[int, memoryview | None]]
    """(partition index, records)"""


class ProduceRequest(NamedTuple):
    """The request's fields; `records` views live as long as the frame does."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProducedTopic]


class PartitionResult(NamedTuple):
    """What became of one partition's records."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None


def read_produce_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The request whose body starts at `position`. Raises MalformedMessage."""
    try:
        if version >= FLEXIBLE_FROM:
            return _read_flexible(frame, position, version)
        return _read_legacy(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"ProduceRequest v{version}: {error}") from None


class SinglePartition:
    """What the requests of one producer for one partition have in common: all but the records.

    Most requests of a producer that sends at once, not in bulk, carry one partition, and the bytes in front of the
    records are the same each time. They are read once and found again by themselves; so is the response around them.
    """

    __slots__ = ("_head", "_size", "_tail", "acks", "partition", "timeout_ms", "topic", "transactional_id")

    def __init__(self, request: ProduceRequest, version: int) -> None:
        self.topic = request.topics[0]
        self.partition = self.topic.partitions[0][0]
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id
        whole = encode_produce_response([(self.topic, [PartitionResult(self.partition)])], version)
        header = b"\0" if version >= FLEXIBLE_FROM else b""
        at = whole.index(_RESULT_V5.pack(self.partition, 0, -1, -1, -1))
        self._head = header + whole[:at]
        self._tail = whole[at + _RESULT_V5.size :]
        self._size = len(header) + len(whole) + 4

    def response(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """The whole frame of a success."""
        result = _RESULT_V5.pack(self.partition, 0, base_offset, log_append_time_ms, log_start_offset)
        return b"".join((_INDEX_SIZE.pack(self._size, correlation_id), self._head, result, self._tail))


_SINGLES_MAX: Final = 4096
_SINGLE_KEY_MAX: Final = 300
_singles: Final[dict[tuple[int, bytes], SinglePartition | None]] = {}
"""By version and the bytes in front of the records' size; None for what is not to be handled this way."""


def read_single_partition(frame: memoryview, position: int, version: int) -> tuple[SinglePartition, memoryview] | None:
    """The request as one partition and its records, None if it is anything else: `read_produce_request` reads that.

    Raises MalformedMessage.
    """
    try:
        if version >= FLEXIBLE_FROM:
            # transactional id (null is one byte), acks, timeout, one topic: its id, or a name; texts below 127 bytes
            topic_at = position + 7 + (frame[position] or 1)
            name_end = topic_at + (16 if version >= TOPIC_IDS_FROM else frame[topic_at])
            records_at = name_end + 5
            size, start = read_uvarint(frame, records_at)  # type: ignore[arg-type]
            size -= 1
            end = len(frame) - 3
        elif version >= _LOG_START_OFFSET_FROM:
            records_at = position + 22 + (frame[position + 12] << 8 | frame[position + 13])
            start = records_at + 4
            size = int.from_bytes(frame[records_at:start], "big")
            end = len(frame)
        else:
            return None
        if size < 0 or start + size != end or records_at - position > _SINGLE_KEY_MAX:
            return None
        key = (version, bytes(frame[position:records_at]))
        single = _singles[key]
    except KeyError:
        single = _remember_single(frame, position, key, version)
    except (IndexError, MalformedMessage):
        return None
    return None if single is None else (single, frame[start:end])


def _remember_single(frame: memoryview, position: int, key: tuple[int, bytes], version: int) -> SinglePartition | None:
    request = read_produce_request(frame, position, version)
    single = None
    topics = request.topics
    # Tagged fields at the end would have other lengths than the three empty sections that were taken for granted.
    plain = version < FLEXIBLE_FROM or bytes(frame[-3:]) == b"\0\0\0"
    plain = plain and request.acks in (1, -1)
    # A text of 127 bytes and more has a longer length before it than was taken for granted.
    if version >= FLEXIBLE_FROM:
        topic_at = position + 7 + (frame[position] or 1)
        plain = plain and frame[position] < 0x80 and (version >= TOPIC_IDS_FROM or frame[topic_at] < 0x80)
    else:
        plain = plain and request.transactional_id is None
    if plain and len(topics) == 1 and len(topics[0].partitions) == 1 and topics[0].partitions[0][1] is not None:
        kept = topics[0]._replace(partitions=[(topics[0].partitions[0][0], None)])
        single = SinglePartition(request._replace(topics=[kept]), version)
    if len(_singles) >= _SINGLES_MAX:
        _singles.clear()
    _singles[key] = single
    return single


def _slice(frame: memoryview, position: int, size: int) -> memoryview:
    if size < 0 or position + size > len(frame):
        raise MalformedMessage(f"ProduceRequest: {size} bytes at {position} of {len(frame)}")
    return frame[position : position + size]


def _read_legacy(frame: memoryview, p: int) -> ProduceRequest:
    transactional_id, p = _legacy_text(frame, p)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, p)
    p += 10
    left = _counted(REQUEST_ELEMENTS_MAX, topic_count)
    topics = []
    for _ in range(topic_count):
        name, p = _legacy_text(frame, p)
        if name is None:
            raise MalformedMessage("ProduceRequest: a topic's name is null")
        (count,) = _INT32.unpack_from(frame, p)
        p += 4
        left = _counted(left, count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(frame, p)
            p += 8
            if size < 0:
                partitions.append((index, None))
                continue
            partitions.append((index, _slice(frame, p, size)))
            p += size
        topics.append(ProducedTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _counted(left: int, count: int) -> int:
    """How many elements the request may have beyond these. Raises TooManyElements."""
    if count > left:
        raise TooManyElements
    return left - count if count > 0 else left


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


def _legacy_text(frame: memoryview, p: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(frame, p)
    p += 2
    if size < 0:
        return None, p
    return str(_slice(frame, p, size), "utf-8"), p + size


def _read_flexible(frame: memoryview, p: int, version: int) -> ProduceRequest:
    buffer: bytes = frame  # type: ignore[assignment]  # indexing a view gives the same ints
    transactional_id = None
    size, p = read_uvarint(buffer, p)
    if size > 0:
        transactional_id = str(_slice(frame, p, size - 1), "utf-8")
        p += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, p)
    topic_count, p = read_uvarint(buffer, p + 6)
    left = _counted(REQUEST_ELEMENTS_MAX, topic_count - 1)
    topics = []
    for _ in range(topic_count - 1):
        name, topic_id = "", None
        if version >= TOPIC_IDS_FROM:
            topic_id = UUID(bytes=bytes(_slice(frame, p, 16)))
            p += 16
        else:
            size, p = read_uvarint(buffer, p)
            name = str(_slice(frame, p, size - 1), "utf-8")
            p += size - 1
        count, p = read_uvarint(buffer, p)
        left = _counted(left, count - 1)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            (index,) = _INT32.unpack_from(frame, p)
            size, p = read_uvarint(buffer, p + 4)
            if size == 0:
                partitions.append((index, None))
            else:
                partitions.append((index, _slice(frame, p, size - 1)))
                p += size - 1
            if buffer[p]:
                left = _counted(left, read_uvarint(buffer, p)[0])
            p = skip_tags(buffer, p)
        if buffer[p]:
            left = _counted(left, read_uvarint(buffer, p)[0])
        p = skip_tags(buffer, p)
        topics.append(ProducedTopic(name, topic_id, partitions))
    skip_tags(buffer, p)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def skip_tags(buffer: bytes, p: int) -> int:
    """The position behind a section of tagged fields whose content does not matter."""
    if buffer[p] == 0:
        return p + 1
    count, p = read_uvarint(buffer, p)
    if count > REQUEST_ELEMENTS_MAX:
        raise TooManyElements
    for _ in range(count):
        _, p = read_uvarint(buffer, p)
        size, p = read_uvarint(buffer, p)
        p += size
        if p > len(buffer):
            raise MalformedMessage("a tagged field runs past the end")
    return p


def encode_produce_response(
    topics: Sequence[tuple[ProducedTopic, Sequence[PartitionResult]]], version: int, throttle_time_ms: int = 0
) -> bytes:
    """The body of the response."""
    out = bytearray()
    flexible = version >= FLEXIBLE_FROM
    out += uvarint(len(topics) + 1) if flexible else len(topics).to_bytes(4, "big")
    for topic, results in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic.topic_id is not None
            out += topic.topic_id.bytes
        else:
            name = topic.name.encode()
            out += uvarint(len(name) + 1) if flexible else len(name).to_bytes(2, "big")
            out += name
        out += uvarint(len(results) + 1) if flexible else len(results).to_bytes(4, "big")
        for result in results:
            _put_result(out, result, version)
        if flexible:
            out.append(0)
    out += throttle_time_ms.to_bytes(4, "big")
    if flexible:
        out.append(0)
    return bytes(out)


def _put_result(out: bytearray, result: PartitionResult, version: int) -> None:
    if version < _LOG_START_OFFSET_FROM:
        out += _RESULT_V3.pack(*result[:4])
        return
    out += _RESULT_V5.pack(*result[:5])
    if version < _RECORD_ERRORS_FROM:
        return
    errors, message = result.record_errors, result.error_message
    if version >= FLEXIBLE_FROM:
        if not errors and message is None:
            out += b"\x01\x00\x00"
            return
        out += uvarint(len(errors) + 1)
        for index, text in errors:
            out += index.to_bytes(4, "big")
            put_compact_text(out, text)
            out.append(0)
        put_compact_text(out, message)
        out.append(0)
        return
    out += len(errors).to_bytes(4, "big")
    for index, text in errors:
        out += index.to_bytes(4, "big")
        put_legacy_text(out, text)
    put_legacy_text(out, message)
