"""Produce requests as parts to write, without a copy of the records; and what their answers say of each partition."""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.client.core.producer.batch import Batch
from barnabas.client.core.views import Broker
from barnabas.client.core.wire import Buffer
from barnabas.protocol.codec import decode, put_compact_text, put_legacy_text, uvarint
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.batch import (
    BATCH_LENGTH_OVERHEAD,
    CHECKED,
    HEADER_SIZE,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.checksum import crc32c

__all__ = [
    "FLEXIBLE_FROM",
    "TOPIC_IDS_FROM",
    "TRANSACTION_V2_FROM",
    "Answer",
    "Answers",
    "batch_header",
    "produce_parts",
    "read_answers",
]

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
TRANSACTION_V2_FROM: Final = 12
"""From here on a transactional Produce adds its partitions to the transaction by itself (KIP-890)."""

_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_RESULT: Final = struct.Struct(">ihqqq")
_NOTHING_MORE: Final = b"\x01\x00\x00"
"""No record errors, no message, no tags."""

Placed = tuple[str, UUID, list[Batch]]
"""A topic, its id, and one batch for each of some partitions."""


def batch_header(batch: Batch, transactional: bool) -> bytes:
    """The 61 bytes in front of the batch's body, checksum included."""
    body = batch.body
    assert body is not None
    checked = CHECKED.pack(
        batch.compression | (TRANSACTIONAL_FLAG if transactional else 0),
        batch.count - 1,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
    )
    crc = crc32c(body, crc32c(checked))
    return PREFIX.pack(0, HEADER_SIZE - BATCH_LENGTH_OVERHEAD + len(body), -1, MAGIC, crc) + checked


def produce_parts(
    version: int, placed: list[Placed], *, acks: int, timeout_ms: int, transactional_id: str | None
) -> list[Buffer]:
    """The body of the request: bytes of ours and the batches' bodies in turn."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray()
    put_text = put_compact_text if flexible else put_legacy_text
    put_text(out, transactional_id)
    out += _ACKS_TIMEOUT.pack(acks, timeout_ms)
    _put_count(out, len(placed), flexible)
    parts: list[Buffer] = []
    for name, topic_id, batches in placed:
        if version >= TOPIC_IDS_FROM:
            out += topic_id.bytes
        else:
            put_text(out, name)
        _put_count(out, len(batches), flexible)
        for batch in batches:
            body = batch.body
            assert body is not None
            size = HEADER_SIZE + len(body)
            out += _INT32.pack(batch.partition)
            out += uvarint(size + 1) if flexible else _INT32.pack(size)
            out += batch_header(batch, transactional_id is not None)
            parts += [out, body]
            out = bytearray(b"\0" if flexible else b"")
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    parts.append(out)
    return parts


def _put_count(out: bytearray, count: int, flexible: bool) -> None:
    out += uvarint(count + 1) if flexible else _INT32.pack(count)


class Answer(NamedTuple):
    """What a broker says of one partition."""

    topic: str | UUID
    """The name, or from version 13 on the id."""
    partition: int
    error_code: int
    base_offset: int
    append_timestamp: int
    error_message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    leader: int = -1
    leader_epoch: int = -1


class Answers(NamedTuple):
    """A Produce response."""

    answers: list[Answer]
    throttle_time_ms: int
    endpoints: dict[int, Broker]


def read_answers(data: bytes, position: int, version: int) -> Answers:
    """The response's body. Raises MalformedMessage. Usual answers are read by hand, at a quarter of the cost."""
    if version >= FLEXIBLE_FROM:
        try:
            found = _read_usual(data, position, version)
        except (struct.error, IndexError, UnicodeDecodeError):
            found = None
        if found is not None:
            return found
    response, _ = decode(ProduceResponse, version, data, position)
    answers = [
        Answer(
            topic.topic_id if version >= TOPIC_IDS_FROM else topic.name,
            answer.index,
            answer.error_code,
            answer.base_offset,
            answer.log_append_time_ms,
            answer.error_message,
            tuple((e.batch_index, e.batch_index_error_message) for e in answer.record_errors),
            answer.current_leader.leader_id,
            answer.current_leader.leader_epoch,
        )
        for topic in response.responses
        for answer in topic.partition_responses
    ]
    endpoints = {e.node_id: Broker(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints}
    return Answers(answers, response.throttle_time_ms, endpoints)


def _read_usual(data: bytes, position: int, version: int) -> Answers | None:
    """A response without messages and tags; None for any other."""
    answers = []
    topic_count = data[position] - 1
    position += 1
    for _ in range(topic_count):
        topic: str | UUID
        if version >= TOPIC_IDS_FROM:
            topic = UUID(bytes=data[position : position + 16])
            position += 16
        else:
            end = position + data[position]
            topic = str(data[position + 1 : end], "utf-8")
            position = end
        partition_count = data[position] - 1
        position += 1
        if topic_count > 126 or partition_count > 126:
            return None
        for _ in range(partition_count):
            index, error_code, base_offset, append_timestamp, _ = _RESULT.unpack_from(data, position)
            position += _RESULT.size
            if data[position : position + 3] != _NOTHING_MORE:
                return None
            position += 3
            answers.append(Answer(topic, index, error_code, base_offset, append_timestamp))
        if data[position]:
            return None
        position += 1
    (throttle_time_ms,) = _INT32.unpack_from(data, position)
    return Answers(answers, throttle_time_ms, {}) if data[position + 4] == 0 else None
