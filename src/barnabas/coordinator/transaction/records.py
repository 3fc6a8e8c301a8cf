"""The records of __transaction_state, byte for byte as Kafka writes them.

Key and value begin with an int16: the kind of the record in the key (always 0), the schema version in the value.
Barnabas writes version 1, which transaction.version 1 and 2 require, and reads version 0, too. A value of None is a
tombstone. Source: transaction-coordinator's message schemas; KIP-890 and KIP-939 for the tagged fields.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas.coordinator.transaction.transaction_metadata import NO_PARTITIONS, TransactionMetadata, TransactionState
from barnabas.errors import CorruptMessage
from barnabas.protocol.codec import MalformedMessage, decode
from barnabas.protocol.primitives import uvarint
from barnabas.protocol.schema import Message, field
from barnabas.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

__all__ = ["CODEC", "ID_BYTES_MAX", "TransactionRecord", "TransactionRecordSerde", "decode_record", "encode_record"]

TRANSACTION_KIND: Final = 0
VALUE_VERSION: Final = 1
ID_BYTES_MAX: Final = 32_767
"""The longest transactional id that a key can have, in UTF-8."""

_STATES: Final = {state.number: state for state in TransactionState}


class TransactionRecord(NamedTuple):
    """The record of a transactional id. A value of None deletes it."""

    transactional_id: str
    metadata: TransactionMetadata | None


# The message classes are for reading: every version, and whatever order of tags another writer chose.


class TransactionLogKey(Message):
    """The key, of kind 0."""

    transactional_id: str = field("string", 0, 0, default="")


class PartitionsSchema(Message):
    """The partitions of one topic."""

    FLEXIBLE_FROM = 1
    LAST_VERSION = 1
    topic: str = field("string", 0, 1, default="")
    partition_ids: Sequence[int] = field("int32", 0, 1, default=(), array=True)


class TransactionLogValue(Message):
    """The state of a transactional id."""

    FLEXIBLE_FROM = 1
    LAST_VERSION = 1
    producer_id: ProducerId = field("int64", 0, 1, default=NO_PRODUCER_ID)
    previous_producer_id: ProducerId = field("int64", 1, 1, default=NO_PRODUCER_ID, tag=0)
    next_producer_id: ProducerId = field("int64", 1, 1, default=NO_PRODUCER_ID, tag=1)
    producer_epoch: int = field("int16", 0, 1, default=0)
    next_producer_epoch: int = field("int16", 1, 1, default=NO_PRODUCER_EPOCH, tag=3)
    transaction_timeout_ms: int = field("int32", 0, 1, default=0)
    transaction_status: int = field("int8", 0, 1, default=0)
    transaction_partitions: Sequence[PartitionsSchema] | None = field(
        PartitionsSchema, 0, 1, default=(), array=True, nullable_from=0
    )
    transaction_last_update_timestamp_ms: int = field("int64", 0, 1, default=NO_TIMESTAMP)
    transaction_start_timestamp_ms: int = field("int64", 0, 1, default=NO_TIMESTAMP)
    client_transaction_version: int = field("int16", 1, 1, default=0, tag=2)


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    name = record.transactional_id.encode()
    key = _KEY_HEAD.pack(TRANSACTION_KIND, len(name)) + name
    return key, None if record.metadata is None else _value(record.metadata)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decodes a record. Returns None for kinds and versions of later Kafka versions. Raises CorruptMessage."""
    try:
        if int.from_bytes(key[:2], "big") != TRANSACTION_KIND:
            return None
        transactional_id = decode(TransactionLogKey, TRANSACTION_KIND, key, 2)[0].transactional_id
        if value is None:
            return TransactionRecord(transactional_id, None)
        version = int.from_bytes(value[:2], "big")
        if version > TransactionLogValue.LAST_VERSION:
            return None
        return TransactionRecord(transactional_id, _metadata_of(decode(TransactionLogValue, version, value, 2)[0]))
    except (MalformedMessage, struct_error, UnicodeDecodeError, IndexError) as error:
        raise CorruptMessage(f"record with key {key[:100].hex()}: {error}") from None


class TransactionRecordSerde:
    """`encode_record` and `decode_record` as a `RecordSerde`."""

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)


CODEC: Final = TransactionRecordSerde()


def _metadata_of(value: TransactionLogValue) -> TransactionMetadata:
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise CorruptMessage(f"a transaction in state {value.transaction_status}, 0 to {len(_STATES) - 1} are known")
    partitions = NO_PARTITIONS
    if state is not TransactionState.EMPTY:
        partitions = frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        )
    return TransactionMetadata(
        producer_id=value.producer_id,
        timeout_ms=value.transaction_timeout_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        state=state,
        partitions=partitions,
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )


# Encoded by hand: each transaction writes three records, and a client waits for each.

_KEY_HEAD: Final = Struct(">hh")
_HEAD: Final = Struct(">hqhib")
"""version, producer_id, producer_epoch, timeout_ms, state"""
_TIMES: Final = Struct(">qq")
_INT: Final = Struct(">i")
_TAGGED_LONG: Final = Struct(">bbq")
_TAGGED_SHORT: Final = Struct(">bbh")
"""tag, size, value"""


def _value(metadata: TransactionMetadata) -> bytes:
    """TransactionLogValue v1."""
    state = metadata.state
    head = _HEAD.pack(VALUE_VERSION, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, state.number)
    # Kafka writes no array at all for an id without a transaction, and an empty one for a completed transaction.
    partitions = b"\0" if state is TransactionState.EMPTY else _partitions(metadata.partitions)
    times = _TIMES.pack(metadata.last_update_timestamp_ms, metadata.start_timestamp_ms)
    tags = []
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_LONG.pack(0, 8, metadata.previous_producer_id))
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_LONG.pack(1, 8, metadata.next_producer_id))
    if metadata.client_transaction_version:
        tags.append(_TAGGED_SHORT.pack(2, 2, metadata.client_transaction_version))
    if metadata.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags.append(_TAGGED_SHORT.pack(3, 2, metadata.next_producer_epoch))
    return b"".join((head, partitions, times, bytes((len(tags),)), *tags))


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    """Returns the partitions sorted, so that the same state always has the same bytes."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [uvarint(len(by_topic) + 1)]
    for topic, ids in by_topic.items():
        name = topic.encode()
        parts += (uvarint(len(name) + 1), name, uvarint(len(ids) + 1), *map(_INT.pack, ids), b"\0")
    return b"".join(parts)
