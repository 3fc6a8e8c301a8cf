"""Writes and reads Produce requests and responses without the codec. Compiled by mypyc.

The records are never copied: a broker gets them as views of the received frame, and a client writes them as separate
parts. The usual response is one pack. Versions 3 to 13. Budget: reading a request of one partition under 4 µs, writing
its response under 2 µs. Source: the protocol's Produce schemas; KIP-516 (topic ids, v13), KIP-467 (record errors, v8),
KIP-951 (leader, v10), KIP-890 (implicit transactions, v12).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.protocol.codec import decode, encode_into
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.primitives import (
    REQUEST_ELEMENTS_MAX,
    MalformedMessage,
    TooManyElements,
    put_count,
    put_text,
    read_size,
    read_uvarint,
    skip_tags,
)
from barnabas.records.batch import Buffer

__all__ = [
    "FLEXIBLE_FROM",
    "TOPIC_IDS_FROM",
    "TRANSACTION_V2_FROM",
    "PartitionResponse",
    "ProduceRequest",
    "ProduceRequestWriter",
    "ProduceResponse",
    "SinglePartition",
    "TopicBatches",
    "TopicProduceData",
    "encode_produce_response",
    "encode_with_leaders",
    "read_produce_request",
    "read_produce_response",
    "read_single_partition",
]

FLEXIBLE_FROM: Final = 9
TRANSACTION_V2_FROM: Final = 12
"""The first version in which a transactional Produce adds its partitions to the transaction."""
TOPIC_IDS_FROM: Final = 13
_LOG_START_OFFSET_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INDEX_SIZE: Final = struct.Struct(">ii")
_RESULT_V3: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")
_RESULT_V9: Final = struct.Struct(">ihqqq3s")
"""The numbers of a partition's response, and the bytes behind them, which usually are _NOTHING_MORE."""
_NOTHING_MORE: Final = b"\x01\x00\x00"
"""The end of a partition's response in flexible versions: no record errors, no message, no tagged fields."""


class TopicProduceData(NamedTuple):
    """A topic of a request, named up to v12 by its name and from v13 on by its id."""

    name: str
    topic_id: UUID | None
    partitions: list[tuple[int, memoryview | None]]
    """Partition indexes and records."""


class ProduceRequest(NamedTuple):
    """A request. Its records are views of the frame, and valid as long as the frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicProduceData]


class PartitionResponse(NamedTuple):
    """The part of a response for one partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    """Indexes of records in the batch, and error messages."""
    error_message: str | None = None
    leader_id: int = -1
    """The partition's current leader, with its epoch; from v10 on (`encode_with_leaders`)."""
    leader_epoch: int = -1


class ProduceResponse(NamedTuple):
    """A response as `read_produce_response` returns it."""

    topics: list[tuple[str | bytes, list[PartitionResponse]]]
    """The partitions of each topic, by the topic's name or from version 13 on by its id."""
    throttle_time_ms: int
    node_endpoints: Sequence[messages.NodeEndpoint]
    """The addresses of the partitions' current leaders."""


# --- requests ---------------------------------------------------------------------------------------------------------

TopicBatches = tuple[str, bytes, list[tuple[int, bytes, bytes]]]
"""A topic's name, its id, and for each partition its index and one batch: the header and the records' bytes."""


class ProduceRequestWriter:
    """Writes the bodies of a producer's requests as lists of parts: every second part holds the records of a batch."""

    def __init__(self, acks: int, timeout_ms: int) -> None:
        self._acks_timeout = _ACKS_TIMEOUT.pack(acks, timeout_ms)
        self._last: tuple[tuple[int, str, bytes, str | None], bytes] | None = None
        """The bytes in front of the batch of the last request with a single batch, and the arguments that made them."""

    def write(self, version: int, topics: list[TopicBatches], transactional_id: str | None) -> list[Buffer]:
        flexible = version >= FLEXIBLE_FROM
        if len(topics) == 1 and len(topics[0][2]) == 1:
            name, topic_id, batches = topics[0]
            index, header, records = batches[0]
            out = bytearray(self._front_of_one(version, name, topic_id, transactional_id))
            _put_batch_header(out, index, header, len(records), flexible)
            return [out, records, b"\0\0\0" if flexible else b""]
        out = self._begin(version, len(topics), transactional_id)
        parts: list[Buffer] = []
        for name, topic_id, batches in topics:
            _put_topic(out, version, name, topic_id, len(batches))
            for index, header, records in batches:
                _put_batch_header(out, index, header, len(records), flexible)
                parts += [out, records]
                out = bytearray(b"\0" if flexible else b"")
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
        parts.append(out)
        return parts

    def _front_of_one(self, version: int, name: str, topic_id: bytes, transactional_id: str | None) -> bytes:
        key = (version, name, topic_id, transactional_id)
        if self._last is None or self._last[0] != key:
            out = self._begin(version, 1, transactional_id)
            _put_topic(out, version, name, topic_id, 1)
            self._last = key, bytes(out)
        return self._last[1]

    def _begin(self, version: int, topic_count: int, transactional_id: str | None) -> bytearray:
        out = bytearray()
        put_text(out, transactional_id, version >= FLEXIBLE_FROM)
        out += self._acks_timeout
        put_count(out, topic_count, version >= FLEXIBLE_FROM)
        return out


def _put_topic(out: bytearray, version: int, name: str, topic_id: bytes, partition_count: int) -> None:
    """Appends the beginning of a topic, which is the same in requests and responses."""
    if version >= TOPIC_IDS_FROM:
        out += topic_id
    else:
        put_text(out, name, version >= FLEXIBLE_FROM)
    put_count(out, partition_count, version >= FLEXIBLE_FROM)


def _put_batch_header(out: bytearray, index: int, header: bytes, records_size: int, flexible: bool) -> None:
    out += _INT32.pack(index)
    put_count(out, len(header) + records_size, flexible)
    out += header


def read_produce_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Returns the request whose body starts at `position`. Raises MalformedMessage."""
    try:
        if version >= FLEXIBLE_FROM:
            return _read_flexible(frame, position, version)
        return _read_legacy(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"ProduceRequest v{version}: {error}") from None


def _read_legacy(frame: memoryview, p: int) -> ProduceRequest:
    transactional_id, p = _legacy_text(frame, p)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, p)
    (topic_count,) = _INT32.unpack_from(frame, p + 6)
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
        topics.append(TopicProduceData(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _legacy_text(frame: memoryview, p: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(frame, p)
    p += 2
    if size < 0:
        return None, p
    return str(_slice(frame, p, size), "utf-8"), p + size


def _read_flexible(frame: memoryview, p: int, version: int) -> ProduceRequest:
    transactional_id = None
    size, p = read_uvarint(frame, p)
    if size > 0:
        transactional_id = str(_slice(frame, p, size - 1), "utf-8")
        p += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, p)
    topic_count, p = read_uvarint(frame, p + 6)
    left = _counted(REQUEST_ELEMENTS_MAX, topic_count - 1)
    topics = []
    for _ in range(topic_count - 1):
        name = ""
        topic_id: UUID | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id = UUID(bytes=bytes(_slice(frame, p, 16)))
            p += 16
        else:
            size, p = read_uvarint(frame, p)
            name = str(_slice(frame, p, size - 1), "utf-8")
            p += size - 1
        count, p = read_uvarint(frame, p)
        left = _counted(left, count - 1)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            (index,) = _INT32.unpack_from(frame, p)
            size, p = read_uvarint(frame, p + 4)
            if size == 0:
                partitions.append((index, None))
            else:
                partitions.append((index, _slice(frame, p, size - 1)))
                p += size - 1
            if frame[p]:
                left = _counted(left, read_uvarint(frame, p)[0])
            p = skip_tags(frame, p)
        if frame[p]:
            left = _counted(left, read_uvarint(frame, p)[0])
        p = skip_tags(frame, p)
        topics.append(TopicProduceData(name, topic_id, partitions))
    skip_tags(frame, p)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _slice(frame: memoryview, position: int, size: int) -> memoryview:
    if size < 0 or position + size > len(frame):
        raise MalformedMessage(f"ProduceRequest: {size} bytes at {position} of {len(frame)}")
    return frame[position : position + size]


def _counted(left: int, count: int) -> int:
    """Returns the number of elements that are left to the request after `count` more. Raises TooManyElements."""
    if count > left:
        raise TooManyElements
    return left - count if count > 0 else left


# --- requests of one partition ----------------------------------------------------------------------------------------


class SinglePartition:
    """The fields that a producer's requests for a single partition share: all but the records.

    Most requests of a producer that does not send in bulk contain one partition, and the bytes in front of the records
    are the same each time. They are decoded once, and serve as the key under which the decoded fields and the prepared
    response are found for the next request.
    """

    __slots__ = ("_head", "_size", "_tail", "acks", "partition", "timeout_ms", "topic", "transactional_id")

    def __init__(self, request: ProduceRequest, version: int) -> None:
        self.topic = request.topics[0]
        self.partition = self.topic.partitions[0][0]
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id
        whole = encode_produce_response([(self.topic, [PartitionResponse(self.partition)])], version)
        header = b"\0" if version >= FLEXIBLE_FROM else b""
        at = whole.index(_RESULT_V5.pack(self.partition, 0, -1, -1, -1))
        self._head = header + whole[:at]
        self._tail = whole[at + _RESULT_V5.size :]
        self._size = len(header) + len(whole) + 4

    def response(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Returns the whole frame of a response without an error."""
        result = _RESULT_V5.pack(self.partition, 0, base_offset, log_append_time_ms, log_start_offset)
        return b"".join((_INDEX_SIZE.pack(self._size, correlation_id), self._head, result, self._tail))


_SINGLES_MAX: Final = 4096
_SINGLE_KEY_MAX: Final = 300
_singles: Final[dict[tuple[int, bytes], SinglePartition | None]] = {}
"""The decoded fields by version and the bytes in front of the records' size; None if `read_produce_request` must read
them."""


def read_single_partition(frame: memoryview, position: int, version: int) -> tuple[SinglePartition, memoryview] | None:
    """Returns the partition and the records of a request with a single partition; None for other requests, which
    `read_produce_request` reads. Raises MalformedMessage."""
    try:
        if version >= FLEXIBLE_FROM:
            # transactional id (null is one byte), acks, timeout, one topic: its id, or a name; texts below 127 bytes
            topic_at = position + 7 + (frame[position] or 1)
            name_end = topic_at + (16 if version >= TOPIC_IDS_FROM else frame[topic_at])
            records_at = name_end + 5
            size, start = read_uvarint(frame, records_at)
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
    # Tagged fields at the end would be longer than the three empty sections that `read_single_partition` assumes.
    plain = version < FLEXIBLE_FROM or bytes(frame[-3:]) == b"\0\0\0"
    plain = plain and request.acks in (1, -1)
    # The length of a text of 127 bytes and more takes more bytes than `read_single_partition` assumes.
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


# --- responses --------------------------------------------------------------------------------------------------------


def encode_produce_response(
    topics: Sequence[tuple[TopicProduceData, Sequence[PartitionResponse]]],
    version: int,
    throttle_time_ms: int = 0,
) -> bytes:
    """Returns the body of the response."""
    out = bytearray()
    flexible = version >= FLEXIBLE_FROM
    put_count(out, len(topics), flexible)
    for topic, results in topics:
        _put_topic(out, version, topic.name, b"" if topic.topic_id is None else topic.topic_id.bytes, len(results))
        for result in results:
            _put_result(out, result, version)
        if flexible:
            out.append(0)
    out += throttle_time_ms.to_bytes(4, "big")
    if flexible:
        out.append(0)
    return bytes(out)


def encode_with_leaders(
    topics: Sequence[tuple[TopicProduceData, Sequence[PartitionResponse]]],
    version: int,
    brokers: Sequence[tuple[int, str, int, str | None]],
) -> bytes:
    """Returns the body of a response that names the current leaders of partitions, and their brokers (KIP-951, from v10
    on). `brokers` are node id, host, port and rack."""
    response = messages.ProduceResponse(
        responses=[
            messages.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id or messages.ZERO_UUID,
                partition_responses=[_result_message(result) for result in results],
            )
            for topic, results in topics
        ],
        node_endpoints=[
            messages.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in brokers
        ],
    )
    out = bytearray()
    encode_into(out, response, version)
    return bytes(out)


def _result_message(result: PartitionResponse) -> messages.PartitionProduceResponse:
    return messages.PartitionProduceResponse(
        index=result.partition,
        error_code=result.error_code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            messages.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in result.record_errors
        ],
        error_message=result.error_message,
        current_leader=messages.LeaderIdAndEpoch(leader_id=result.leader_id, leader_epoch=result.leader_epoch),
    )


def _put_result(out: bytearray, result: PartitionResponse, version: int) -> None:
    if version < _LOG_START_OFFSET_FROM:
        out += _RESULT_V3.pack(*result[:4])
        return
    out += _RESULT_V5.pack(*result[:5])
    if version < _RECORD_ERRORS_FROM:
        return
    flexible = version >= FLEXIBLE_FROM
    errors, message = result.record_errors, result.error_message
    if flexible and not errors and message is None:
        out += _NOTHING_MORE
        return
    put_count(out, len(errors), flexible)
    for index, text in errors:
        out += index.to_bytes(4, "big")
        put_text(out, text, flexible)
        if flexible:
            out.append(0)
    put_text(out, message, flexible)
    if flexible:
        out.append(0)


def read_produce_response(data: bytes, position: int, version: int) -> ProduceResponse:
    """Returns the response whose body starts at `position`. Raises MalformedMessage. Reading usual responses without
    the codec costs a quarter."""
    if version >= FLEXIBLE_FROM:
        try:
            usual = _read_usual(data, position, version)
        except (struct.error, IndexError, UnicodeDecodeError):
            usual = None  # the codec raises the error
        if usual is not None:
            return usual
    response, _ = decode(messages.ProduceResponse, version, data, position)
    topics: list[tuple[str | bytes, list[PartitionResponse]]] = [
        (
            topic.topic_id.bytes if version >= TOPIC_IDS_FROM else topic.name,
            [
                PartitionResponse(
                    partition.index,
                    partition.error_code,
                    partition.base_offset,
                    partition.log_append_time_ms,
                    partition.log_start_offset,
                    tuple((each.batch_index, each.batch_index_error_message) for each in partition.record_errors),
                    partition.error_message,
                    partition.current_leader.leader_id,
                    partition.current_leader.leader_epoch,
                )
                for partition in topic.partition_responses
            ],
        )
        for topic in response.responses
    ]
    return ProduceResponse(topics, response.throttle_time_ms, response.node_endpoints)


def _read_usual(data: bytes, position: int, version: int) -> ProduceResponse | None:
    """Returns a response without error messages and tagged fields; None for any other."""
    topics: list[tuple[str | bytes, list[PartitionResponse]]] = []
    topic_count, position = read_size(data, position)
    for _ in range(topic_count):
        topic: str | bytes
        if version >= TOPIC_IDS_FROM:
            topic = data[position : position + 16]
            position += 16
        else:
            size, position = read_size(data, position)
            topic = str(data[position : position + size], "utf-8")
            position += size
        partition_count, position = read_size(data, position)
        partitions: list[PartitionResponse] = []
        for _ in range(partition_count):
            index, code, base_offset, append_time_ms, start_offset, rest = _RESULT_V9.unpack_from(data, position)
            position += _RESULT_V9.size
            if rest != _NOTHING_MORE:
                return None
            partitions.append(PartitionResponse(index, code, base_offset, append_time_ms, start_offset))
        topics.append((topic, partitions))
        if data[position]:
            return None
        position += 1
    (throttle_time_ms,) = _INT32.unpack_from(data, position)
    return ProduceResponse(topics, throttle_time_ms, ()) if data[position + 4] == 0 else None
