"""Produce requests as parts to write, without a copy of the records; and what their answers say of each partition."""

import struct
from typing import Final, NamedTuple

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.connection.broker.broker_connection import Buffer
from barnabas.connection.cluster import Broker
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
from barnabas.types import BrokerId

__all__ = [
    "FLEXIBLE_FROM",
    "TOPIC_IDS_FROM",
    "TRANSACTION_V2_FROM",
    "Answer",
    "Answers",
    "Placed",
    "ProduceBodies",
    "batch_header",
    "read_answers",
]

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
TRANSACTION_V2_FROM: Final = 12
"""From here on a transactional Produce adds its partitions to the transaction by itself (KIP-890)."""

_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_RESULT: Final = struct.Struct(">ihqqq3s")
_NOTHING_MORE: Final = b"\x01\x00\x00"
"""No record errors, no message, no tags."""

Placed = tuple[str, bytes, list[ProducerBatch]]
"""A topic, its id, and one batch for each of some partitions."""


def batch_header(batch: ProducerBatch, transactional: bool) -> bytes:
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


class ProduceBodies:
    """The bodies of one producer's requests: bytes of ours and the batches' bodies in turn."""

    def __init__(self, acks: int, timeout_ms: int) -> None:
        self._acks_timeout = _ACKS_TIMEOUT.pack(acks, timeout_ms)
        self._last: tuple[tuple[int, str, bytes, str | None], bytes] | None = None
        """What stands in front of the batch in a request with one, which is the same from request to request."""

    def parts(self, version: int, placed: list[Placed], transactional_id: str | None) -> list[Buffer]:
        flexible = version >= FLEXIBLE_FROM
        transactional = transactional_id is not None
        if len(placed) == 1 and len(placed[0][2]) == 1:
            name, topic_id, batches = placed[0]
            out = bytearray(self._front_of_one(version, name, topic_id, transactional_id))
            _put_batch(out, batches[0], flexible, transactional)
            return [out, batches[0].body or b"", b"\0\0\0" if flexible else b""]
        out = self._begin(version, len(placed), transactional_id)
        parts: list[Buffer] = []
        for name, topic_id, batches in placed:
            _put_topic(out, version, name, topic_id, len(batches))
            for batch in batches:
                _put_batch(out, batch, flexible, transactional)
                parts += [out, batch.body or b""]
                out = bytearray(b"\0" if flexible else b"")
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
        parts.append(out)
        return parts

    def _front_of_one(self, version: int, name: str, topic_id: bytes, transactional_id: str | None) -> bytes:
        asked = (version, name, topic_id, transactional_id)
        if self._last is None or self._last[0] != asked:
            out = self._begin(version, 1, transactional_id)
            _put_topic(out, version, name, topic_id, 1)
            self._last = asked, bytes(out)
        return self._last[1]

    def _begin(self, version: int, topic_count: int, transactional_id: str | None) -> bytearray:
        out = bytearray()
        put_text = put_compact_text if version >= FLEXIBLE_FROM else put_legacy_text
        put_text(out, transactional_id)
        out += self._acks_timeout
        _put_count(out, topic_count, version >= FLEXIBLE_FROM)
        return out


def _put_topic(out: bytearray, version: int, name: str, topic_id: bytes, batch_count: int) -> None:
    if version >= TOPIC_IDS_FROM:
        out += topic_id
    elif version >= FLEXIBLE_FROM:
        put_compact_text(out, name)
    else:
        put_legacy_text(out, name)
    _put_count(out, batch_count, version >= FLEXIBLE_FROM)


def _put_batch(out: bytearray, batch: ProducerBatch, flexible: bool, transactional: bool) -> None:
    """All of it but the body."""
    body = batch.body
    assert body is not None
    size = HEADER_SIZE + len(body)
    out += _INT32.pack(batch.partition)
    out += uvarint(size + 1) if flexible else _INT32.pack(size)
    out += batch_header(batch, transactional)


def _put_count(out: bytearray, count: int, flexible: bool) -> None:
    out += uvarint(count + 1) if flexible else _INT32.pack(count)


class Answer(NamedTuple):
    """What a broker says of one partition."""

    topic: str | bytes
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
            topic.topic_id.bytes if version >= TOPIC_IDS_FROM else topic.name,
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
    endpoints = {e.node_id: Broker(BrokerId(e.node_id), e.host, e.port, e.rack) for e in response.node_endpoints}
    return Answers(answers, response.throttle_time_ms, endpoints)


def _read_usual(data: bytes, position: int, version: int) -> Answers | None:
    """A response without messages and tags; None for any other."""
    answers = []
    topic_count = data[position] - 1
    position += 1
    for _ in range(topic_count):
        topic: str | bytes
        if version >= TOPIC_IDS_FROM:
            topic = data[position : position + 16]
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
            index, error_code, base_offset, append_timestamp, _, nothing_more = _RESULT.unpack_from(data, position)
            position += _RESULT.size
            if nothing_more != _NOTHING_MORE:
                return None
            answers.append(Answer(topic, index, error_code, base_offset, append_timestamp))
        if data[position]:
            return None
        position += 1
    (throttle_time_ms,) = _INT32.unpack_from(data, position)
    return Answers(answers, throttle_time_ms, {}) if data[position + 4] == 0 else None
