"""The records of __consumer_offsets, byte for byte as Kafka writes them.

Key and value begin with an int16: the kind of the record in the key, the schema version in the value. Barnabas writes
what Kafka 4.4 writes: offset keys of kind 1 with values of version 4 (version 1 while an old client asks for a
retention of its own), group keys of kind 2 with values of version 3. All older versions are read. A value of None is a
tombstone. Source: group-coordinator's message schemas; KIP-915.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from barnabas.errors import CorruptMessage
from barnabas.protocol.codec import MalformedMessage, decode, encode_into
from barnabas.protocol.primitives import read_uvarint, uvarint
from barnabas.protocol.schema import Message, field
from barnabas.types import FIRST_OFFSET, NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset

__all__ = [
    "CODEC",
    "GroupMember",
    "GroupMetadata",
    "GroupMetadataValue",
    "GroupRecord",
    "GroupRecordSerde",
    "OffsetCommit",
    "OffsetCommitValue",
    "decode_record",
    "encode_record",
]

ZERO_UUID: Final = UUID(int=0)

LEGACY_OFFSET_KIND: Final = 0
OFFSET_KIND: Final = 1
GROUP_KIND: Final = 2

OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3


class OffsetCommitKey(Message):
    """The key of a committed offset: kinds 0 and 1."""

    LAST_VERSION = 1
    group: str = field("string", 0, 1, default="")
    topic: str = field("string", 0, 1, default="")
    partition: int = field("int32", 0, 1, default=0)


class OffsetCommitValue(Message):
    """A committed offset: that of the next record to read."""

    FLEXIBLE_FROM = 4
    LAST_VERSION = 4
    offset: Offset = field("int64", 0, 4, default=FIRST_OFFSET)
    leader_epoch: LeaderEpoch = field("int32", 3, 4, default=NO_LEADER_EPOCH)
    metadata: str = field("string", 0, 4, default="")
    commit_timestamp: int = field("int64", 0, 4, default=0)
    expire_timestamp: int = field("int64", 1, 1, default=NO_TIMESTAMP)
    topic_id: UUID = field("uuid", 4, 4, default=ZERO_UUID, tag=0)


class GroupMetadataKey(Message):
    """The key of a group: kind 2."""

    FIRST_VERSION = 2
    LAST_VERSION = 2
    group: str = field("string", 2, 2, default="")


class GroupMember(Message):
    """A member of a generation. A `rebalance_timeout` of -1 means the session timeout."""

    FLEXIBLE_FROM = 4
    LAST_VERSION = 4
    member_id: str = field("string", 0, 4, default="")
    group_instance_id: str | None = field("string", 3, 4, default=None, nullable_from=3)
    client_id: str = field("string", 0, 4, default="")
    client_host: str = field("string", 0, 4, default="")
    rebalance_timeout: int = field("int32", 1, 4, default=-1)
    session_timeout: int = field("int32", 0, 4, default=0)
    subscription: bytes = field("bytes", 0, 4, default=b"")
    assignment: bytes = field("bytes", 0, 4, default=b"")


class GroupMetadataValue(Message):
    """A generation of a group. A group without members is empty."""

    FLEXIBLE_FROM = 4
    LAST_VERSION = 4
    protocol_type: str = field("string", 0, 4, default="")
    generation: int = field("int32", 0, 4, default=0)
    protocol: str | None = field("string", 0, 4, default=None, nullable_from=0)
    leader: str | None = field("string", 0, 4, default=None, nullable_from=0)
    current_state_timestamp: int = field("int64", 2, 4, default=NO_TIMESTAMP)
    members: Sequence[GroupMember] = field(GroupMember, 0, 4, default=(), array=True)


class OffsetCommit(NamedTuple):
    """The record of a committed offset. A value of None deletes it."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


class GroupMetadata(NamedTuple):
    """The record of a group's generation. A value of None deletes the group."""

    group_id: str
    value: GroupMetadataValue | None


GroupRecord = OffsetCommit | GroupMetadata
V = TypeVar("V", OffsetCommitValue, GroupMetadataValue)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, OffsetCommit):
        value = record.value
        key = _offset_key(record)
        if value is None:
            return key, None
        if value.expire_timestamp != NO_TIMESTAMP:
            return key, _versioned(value, OFFSET_VALUE_VERSION_WITH_EXPIRY)
        return key, _offset_value(value)
    key = _versioned(GroupMetadataKey(group=record.group_id), GROUP_KIND)
    return key, None if record.value is None else _versioned(record.value, GROUP_VALUE_VERSION)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Decodes a record. Returns None for kinds of later Kafka versions (KIP-848 and share groups). Raises
    CorruptMessage."""
    try:
        kind = int.from_bytes(key[:2], "big")
        if kind in (LEGACY_OFFSET_KIND, OFFSET_KIND):
            if value is not None and value[:2] == _VERSION_4:
                return _read_offset(key, value)
            offset_key, _ = decode(OffsetCommitKey, kind, key, 2)
            offset = None if value is None else _value(OffsetCommitValue, value)
            return OffsetCommit(offset_key.group, offset_key.topic, offset_key.partition, offset)
        if kind == GROUP_KIND:
            group_key, _ = decode(GroupMetadataKey, kind, key, 2)
            return GroupMetadata(group_key.group, None if value is None else _value(GroupMetadataValue, value))
    except (MalformedMessage, struct_error, UnicodeDecodeError, IndexError) as error:
        raise CorruptMessage(f"record with key {key[:100].hex()}: {error}") from None
    return None


class GroupRecordSerde:
    """`encode_record` and `decode_record` as a `RecordSerde`."""

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)


CODEC: Final = GroupRecordSerde()


# Offsets are written and read by hand: clients commit all the time, and a long log of commits is read at every start.

_SHORT: Final = Struct(">h")
_SHORTS: Final = Struct(">hh")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_OFFSET_HEAD: Final = Struct(">hqi")
"""version, offset, leader_epoch"""
_VERSION_4: Final = b"\0\4"
_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""One tagged field, tag 0, 16 bytes."""


def _offset_key(record: OffsetCommit) -> bytes:
    group, topic = record.group_id.encode(), record.topic.encode()
    head = _SHORTS.pack(OFFSET_KIND, len(group))
    return b"".join((head, group, _SHORT.pack(len(topic)), topic, _INT.pack(record.partition)))


def _offset_value(value: OffsetCommitValue) -> bytes:
    metadata = value.metadata.encode()
    tags = b"\0" if value.topic_id == ZERO_UUID else _TOPIC_ID_TAG + value.topic_id.bytes
    head = _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, value.offset, value.leader_epoch)
    return b"".join((head, uvarint(len(metadata) + 1), metadata, _LONG.pack(value.commit_timestamp), tags))


def _read_offset(key: bytes, data: bytes) -> OffsetCommit:
    """Decodes a key of kind 0 or 1 with a value of version 4."""
    group_end = 4 + _SHORT.unpack_from(key, 2)[0]
    topic_end = group_end + 2 + _SHORT.unpack_from(key, group_end)[0]
    if not 4 <= group_end <= topic_end - 2:
        raise CorruptMessage(f"offset key {key[:100].hex()} has a name of negative length")
    partition: int = _INT.unpack_from(key, topic_end)[0]
    _, offset, leader_epoch = _OFFSET_HEAD.unpack_from(data)
    size, position = read_uvarint(data, _OFFSET_HEAD.size)
    end = position + size - 1
    if size == 0 or end > len(data) - 9:
        raise CorruptMessage(f"offset value {data[:100].hex()} has metadata of {size - 1} bytes")
    tags = data[end + 8 :]
    if tags == b"\0":
        topic_id = ZERO_UUID
    elif len(tags) == 19 and tags[:3] == _TOPIC_ID_TAG:
        topic_id = UUID(bytes=tags[3:])
    else:
        topic_id = _value(OffsetCommitValue, data).topic_id
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=str(data[position:end], "utf-8"),
        commit_timestamp=_LONG.unpack_from(data, end)[0],
        topic_id=topic_id,
    )
    group_id, topic = str(key[4:group_end], "utf-8"), str(key[group_end + 2 : topic_end], "utf-8")
    return OffsetCommit(group_id, topic, partition, value)


def _versioned(message: Message, version: int) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    encode_into(out, message, version)
    return bytes(out)


def _value(cls: type[V], value: bytes) -> V:
    version = int.from_bytes(value[:2], "big")
    if not cls.FIRST_VERSION <= version <= cls.LAST_VERSION:
        raise CorruptMessage(f"{cls.__name__} of version {version}, 0 to {cls.LAST_VERSION} are known")
    return decode(cls, version, value, 2)[0]
