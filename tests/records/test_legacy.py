import struct

import pytest

from barnabas.errors import CorruptMessage
from barnabas.records.compression import CODECS, GZIP, LZ4, SNAPPY, compress
from barnabas.records.legacy import build_message, build_wrapper, iter_messages, read_message, records_of
from barnabas.records.reader import iter_any
from barnabas.records.record import Record

T0 = 1_500_000_000_000


def records(magic: int, first: int = 50) -> list[Record]:
    timestamps = [-1, -1, -1] if magic == 0 else [T0, T0 + 9, T0 + 4]
    keys = (b"a", None, b"")
    values = (b"one", b"two", None)
    return [Record(first + i, timestamps[i], keys[i], values[i]) for i in range(3)]


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages(magic: int) -> None:
    entries = records(magic)
    data = b"".join(
        build_message(entry.offset, entry.key, entry.value, magic=magic, timestamp=entry.timestamp) for entry in entries
    )
    assert list(iter_any(data)) == entries
    assert [message.is_valid for message in iter_messages(data)] == [True] * 3


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers(magic: int, codec: int) -> None:
    data = build_wrapper(records(magic), codec=codec, magic=magic)
    message = read_message(data)
    assert (message.offset, message.compression_type, message.size_bytes) == (52, codec, len(data))
    assert records_of(message) == records(magic)


def test_v1_wrapper_with_offset_zero() -> None:
    # librdkafka's early producers: the broker of the day set the offset, a file never shows it, a request does
    inner = b"".join(build_message(i, b"k", b"v", timestamp=T0) for i in range(3))
    wrapper = build_message(0, None, compress(GZIP, inner), timestamp=T0, attributes=GZIP)
    assert [record.offset for record in records_of(read_message(wrapper))] == [0, 1, 2]


def test_v1_wrapper_of_compacted_records() -> None:
    inner = b"".join(build_message(i, b"k", b"v", timestamp=T0) for i in (0, 3, 7))
    wrapper = build_message(107, None, compress(GZIP, inner), timestamp=T0, attributes=GZIP)
    assert [record.offset for record in records_of(read_message(wrapper))] == [100, 103, 107]


def test_log_append_time_of_a_wrapper() -> None:
    data = build_wrapper(records(1), codec=GZIP, log_append_time=T0 + 1000)
    assert read_message(data).is_log_append_time
    assert {record.timestamp for record in iter_any(data)} == {T0 + 1000}


def test_broken_messages() -> None:
    good = build_message(5, b"key", b"value", timestamp=T0)
    for position, number in ((8, 13), (8, 10_000), (16, 2), (16, 0x80)):
        changed = bytearray(good)
        struct.pack_into(">i" if position == 8 else ">B", changed, position, number)
        with pytest.raises(CorruptMessage):
            read_message(changed)
    for size in range(len(good)):
        with pytest.raises(CorruptMessage):
            read_message(good[:size])
        assert list(iter_messages(good[:size])) == []


def test_wrong_checksum_is_seen_and_refused() -> None:
    good = bytearray(build_message(5, b"key", b"value", timestamp=T0))
    good[-1] ^= 1
    message = read_message(good)
    assert not message.is_valid
    with pytest.raises(CorruptMessage, match="checksum"):
        records_of(message)


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        (GZIP, None),
        (GZIP, b"rubbish"),
        (GZIP, compress(GZIP, b"")),
        (GZIP, compress(GZIP, build_message(0, None, compress(GZIP, b""), attributes=GZIP))),
        (LZ4, b""),
        (LZ4, b"\x04\x22\x4d\x18"),
        (4, b"x"),
        (7, b"x"),
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_broken_wrappers(magic: int, attributes: int, value: bytes | None) -> None:
    message = build_message(9, None, value, magic=magic, attributes=attributes)
    with pytest.raises(CorruptMessage):
        records_of(read_message(message))


def test_wrapper_that_ends_before_its_messages() -> None:
    inner = b"".join(build_message(i, b"k", b"v") for i in range(5))
    with pytest.raises(CorruptMessage, match="relative offset 4"):
        records_of(read_message(build_message(2, None, compress(GZIP, inner), attributes=GZIP)))


def test_bound() -> None:
    data = build_wrapper([Record(1, T0, None, bytes(1_000_000))], codec=GZIP)
    with pytest.raises(CorruptMessage, match="more than 1000 bytes"):
        records_of(read_message(data), 1000)
    assert CODECS[read_message(data).compression_type] == "gzip"
