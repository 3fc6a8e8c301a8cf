"""Records of __consumer_offsets against bytes that Kafka 4.4.0's own generated classes write."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.group.records import (
    GroupMember,
    GroupMetadata,
    GroupMetadataValue,
    OffsetCommit,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_record,
)
from barnabas.errors import CorruptMessage
from barnabas.protocol.codec import encode

OFFSET_KEY = bytes.fromhex("000100076772c3bc70706500066f726465727300000003")
OFFSET_KEY_0 = bytes.fromhex("000000076772c3bc70706500066f726465727300000003")
GROUP_KEY = bytes.fromhex("0002000167")
OFFSET_VALUES = {
    0: "00000000011f71fb04cb00086d65746120e298830000018bcfe56800",
    1: "00010000011f71fb04cb00086d65746120e298830000018bcfe568000000018bcfe65260",
    2: "00020000011f71fb04cb00086d65746120e298830000018bcfe56800",
    3: "00030000011f71fb04cb0000000700086d65746120e298830000018bcfe56800",
    4: "00040000011f71fb04cb00000007096d65746120e298830000018bcfe568000100100123456789abcdef123456789abcdef0",
}
GROUP_VALUES = {
    0: "00000008636f6e73756d657200000009000572616e676500036d2d310000000100036d2d3100016300082f312e322e332e340000afc8"
    "00000003010203000000020405",
    1: "00010008636f6e73756d657200000009000572616e676500036d2d310000000100036d2d3100016300082f312e322e332e34000493e0"
    "0000afc800000003010203000000020405",
    2: "00020008636f6e73756d657200000009000572616e676500036d2d310000018bcfe568000000000100036d2d3100016300082f312e32"
    "2e332e34000493e00000afc800000003010203000000020405",
    3: "00030008636f6e73756d657200000009000572616e676500036d2d310000018bcfe568000000000100036d2d310003692d3100016300"
    "082f312e322e332e34000493e00000afc800000003010203000000020405",
    4: "000409636f6e73756d6572000000090672616e6765046d2d310000018bcfe5680002046d2d3104692d310263092f312e322e332e3400"
    "0493e00000afc8040102030304050000",
}
TOPIC_ID = UUID("01234567-89ab-cdef-1234-56789abcdef0")


def offset_value(version: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=1234567890123,
        metadata="meta ☃",
        commit_timestamp=1700000000000,
        leader_epoch=7 if version >= 3 else -1,
        expire_timestamp=1700000060000 if version == 1 else -1,
        topic_id=TOPIC_ID if version == 4 else UUID(int=0),
    )


def group_value(version: int) -> GroupMetadataValue:
    member = GroupMember(
        member_id="m-1",
        group_instance_id="i-1" if version >= 3 else None,
        client_id="c",
        client_host="/1.2.3.4",
        rebalance_timeout=300000 if version >= 1 else -1,
        session_timeout=45000,
        subscription=b"\1\2\3",
        assignment=b"\4\5",
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=9,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1700000000000 if version >= 2 else -1,
        members=[member],
    )


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_offsets_of_every_version_are_read(version: int) -> None:
    expected = OffsetCommit("grüppe", "orders", 3, offset_value(version))
    value = bytes.fromhex(OFFSET_VALUES[version])
    assert decode_record(OFFSET_KEY, value) == expected
    assert decode_record(OFFSET_KEY_0, value) == expected


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_groups_of_every_version_are_read(version: int) -> None:
    assert decode_record(GROUP_KEY, bytes.fromhex(GROUP_VALUES[version])) == GroupMetadata("g", group_value(version))


def test_written_as_kafka_writes() -> None:
    assert encode_record(OffsetCommit("grüppe", "orders", 3, offset_value(4))) == (
        OFFSET_KEY,
        bytes.fromhex(OFFSET_VALUES[4]),
    )
    assert encode_record(OffsetCommit("grüppe", "orders", 3, offset_value(1)))[1] == bytes.fromhex(OFFSET_VALUES[1])
    assert encode_record(GroupMetadata("g", group_value(3))) == (GROUP_KEY, bytes.fromhex(GROUP_VALUES[3]))
    no_topic_id = OffsetCommitValue(offset=5, commit_timestamp=6)
    assert encode_record(OffsetCommit("g", "t", 0, no_topic_id))[1] == bytes.fromhex(
        "00040000000000000005ffffffff01000000000000000600"
    )


def test_tombstones() -> None:
    assert encode_record(OffsetCommit("grüppe", "orders", 3, None)) == (OFFSET_KEY, None)
    assert decode_record(GROUP_KEY, None) == GroupMetadata("g", None)


@pytest.mark.parametrize("kind", range(3, 40))
def test_kinds_of_later_protocols_are_left_alone(kind: int) -> None:
    assert decode_record(kind.to_bytes(2, "big") + b"\0\1g", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY, b"\0\5" + bytes(40)),
        (OFFSET_KEY, b"\xff\xff"),
        (OFFSET_KEY[:-1], b"\0\3"),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[3])[:-1]),
        (OFFSET_KEY, b""),
    ],
)
def test_damaged_records(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_record(key, value)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=200))
def test_rubbish_is_a_record_or_one_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(CorruptMessage):
        decode_record(key, value)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(
    st.tuples(TEXT, TEXT, st.integers(-(2**31), 2**31 - 1)),
    st.builds(
        OffsetCommitValue,
        offset=st.integers(-(2**63), 2**63 - 1),
        leader_epoch=st.integers(-(2**31), 2**31 - 1),
        metadata=TEXT,
        commit_timestamp=st.integers(-(2**63), 2**63 - 1),
        topic_id=st.just(UUID(int=0)) | st.uuids(),
    ),
)
def test_offsets_by_hand_are_those_of_the_schema(key: tuple[str, str, int], value: OffsetCommitValue) -> None:
    record = OffsetCommit(*key, value)
    encoded_key, encoded = encode_record(record)
    by_schema = OffsetCommitKey(group=key[0], topic=key[1], partition=key[2])
    assert encoded_key == b"\0\1" + encode(by_schema, 1)
    assert encoded == b"\0\4" + encode(value, 4)
    assert decode_record(encoded_key, encoded) == record


@given(st.data())
def test_a_damaged_offset_is_a_record_or_one_error(data: st.DataObject) -> None:
    encoded = bytearray(bytes.fromhex(OFFSET_VALUES[4]))
    encoded[data.draw(st.integers(2, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(2, len(encoded)))
    with contextlib.suppress(CorruptMessage):
        decode_record(OFFSET_KEY, bytes(encoded[:cut]))
