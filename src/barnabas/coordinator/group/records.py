"""The records of __consumer_offsets, byte for byte as Kafka writes them.

Key and value begin with an int16: the key's says the kind of the record, the value's its schema version. Written are
what Kafka 4.3 writes: offset keys of kind 1 with values of version 4 (version 1 while an old client asks for a
retention of its own), group keys of kind 2 with values of version 3. All older versions are read. A value of None is a
tombstone. Source: group-coordinator's message schemas; KIP-915.
"""

from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from barnabas.errors import CorruptMessage
from barnabas.protocol.codec import MalformedMessage, decode, encode_into
from barnabas.protocol.schema import Field, Message
from barnabas.types import NO_LEADER_EPOCH, NO_TIMESTAMP

__all__ = [
    "CODEC",
    "GroupMember",
    "GroupMetadata",
    "GroupMetadataValue",
    "GroupRecord",
    "GroupRecordCodec",
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
    """Kinds 0 and 1."""

    __slots__ = ("group", "partition", "topic")
    SCHEMA = (
        Field("group", "string", 0, 1, ""),
        Field("topic", "string", 0, 1, ""),
        Field("partition", "int32", 0, 1, 0),
    )
    LAST_VERSION = 1

    def __init__(self, *, group: str = "", topic: str = "", partition: int = 0) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition


class OffsetCommitValue(Message):
    """A committed offset: the next one to read."""

    __slots__ = ("commit_timestamp", "expire_timestamp", "leader_epoch", "metadata", "offset", "topic_id")
    SCHEMA = (
        Field("offset", "int64", 0, 4, 0),
        Field("leader_epoch", "int32", 3, 4, -1),
        Field("metadata", "string", 0, 4, ""),
        Field("commit_timestamp", "int64", 0, 4, 0),
        Field("expire_timestamp", "int64", 1, 1, -1),
        Field("topic_id", "uuid", 4, 4, ZERO_UUID, tag=0),
    )
    FLEXIBLE_FROM = 4
    LAST_VERSION = 4

    def __init__(
        self,
        *,
        offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = NO_TIMESTAMP,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id


class GroupMetadataKey(Message):
    """Kind 2."""

    __slots__ = ("group",)
    SCHEMA = (Field("group", "string", 2, 2, ""),)
    FIRST_VERSION = 2
    LAST_VERSION = 2

    def __init__(self, *, group: str = "") -> None:
        self.group = group


class GroupMember(Message):
    """A member of a generation. `rebalance_timeout` -1: as the session timeout."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "member_id",
        "rebalance_timeout",
        "session_timeout",
        "subscription",
    )
    SCHEMA = (
        Field("member_id", "string", 0, 4, ""),
        Field("group_instance_id", "string", 3, 4, None, nullable_from=3),
        Field("client_id", "string", 0, 4, ""),
        Field("client_host", "string", 0, 4, ""),
        Field("rebalance_timeout", "int32", 1, 4, -1),
        Field("session_timeout", "int32", 0, 4, 0),
        Field("subscription", "bytes", 0, 4, b""),
        Field("assignment", "bytes", 0, 4, b""),
    )
    FLEXIBLE_FROM = 4
    LAST_VERSION = 4

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout: int = -1,
        session_timeout: int = 0,
        subscription: bytes = b"",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.subscription = subscription
        self.assignment = assignment


class GroupMetadataValue(Message):
    """One generation of a group, without members an empty group."""

    __slots__ = ("current_state_timestamp", "generation", "leader", "members", "protocol", "protocol_type")
    SCHEMA = (
        Field("protocol_type", "string", 0, 4, ""),
        Field("generation", "int32", 0, 4, 0),
        Field("protocol", "string", 0, 4, None, nullable_from=0),
        Field("leader", "string", 0, 4, None, nullable_from=0),
        Field("current_state_timestamp", "int64", 2, 4, -1),
        Field("members", GroupMember, 0, 4, (), array=True),
    )
    FLEXIBLE_FROM = 4
    LAST_VERSION = 4

    def __init__(
        self,
        *,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = None,
        leader: str | None = None,
        current_state_timestamp: int = NO_TIMESTAMP,
        members: "list[GroupMember] | tuple[GroupMember, ...]" = (),
    ) -> None:
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.current_state_timestamp = current_state_timestamp
        self.members = members


class OffsetCommit(NamedTuple):
    """(group, topic, partition) -> offset; None forgets it."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


class GroupMetadata(NamedTuple):
    """group -> generation; None forgets the group."""

    group_id: str
    value: GroupMetadataValue | None


GroupRecord = OffsetCommit | GroupMetadata
V = TypeVar("V", OffsetCommitValue, GroupMetadataValue)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value) of a record."""
    if isinstance(record, OffsetCommit):
        key = _versioned(
            OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition), OFFSET_KIND
        )
        value = record.value
        if value is None:
            return key, None
        old = value.expire_timestamp != NO_TIMESTAMP
        return key, _versioned(value, OFFSET_VALUE_VERSION_WITH_EXPIRY if old else OFFSET_VALUE_VERSION)
    key = _versioned(GroupMetadataKey(group=record.group_id), GROUP_KIND)
    return key, None if record.value is None else _versioned(record.value, GROUP_VALUE_VERSION)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for kinds of later Kafka versions (KIP-848 and share groups). Raises CorruptMessage."""
    try:
        kind = int.from_bytes(key[:2], "big")
        if kind in (LEGACY_OFFSET_KIND, OFFSET_KIND):
            offset_key, _ = decode(OffsetCommitKey, kind, key, 2)
            offset = None if value is None else _value(OffsetCommitValue, value)
            return OffsetCommit(offset_key.group, offset_key.topic, offset_key.partition, offset)
        if kind == GROUP_KIND:
            group_key, _ = decode(GroupMetadataKey, kind, key, 2)
            return GroupMetadata(group_key.group, None if value is None else _value(GroupMetadataValue, value))
    except MalformedMessage as error:
        raise CorruptMessage(str(error)) from None
    return None


class GroupRecordCodec:
    """`encode_record` and `decode_record` as the runtime wants them."""

    encode = staticmethod(encode_record)
    decode = staticmethod(decode_record)


CODEC: Final = GroupRecordCodec()


def _versioned(message: Message, version: int) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    encode_into(out, message, version)
    return bytes(out)


def _value(cls: type[V], value: bytes) -> V:
    version = int.from_bytes(value[:2], "big")
    if not cls.FIRST_VERSION <= version <= cls.LAST_VERSION:
        raise CorruptMessage(f"{cls.__name__} of version {version}, 0 to {cls.LAST_VERSION} are known")
    return decode(cls, version, value, 2)[0]
