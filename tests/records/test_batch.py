import struct

import pytest

from barnabas.errors import CorruptMessage
from barnabas.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    crc_of,
    increment_sequence,
    iter_batches,
    iter_headers,
    pack_header,
    read_header,
    set_crc,
)
from barnabas.records.builder import build_batch
from barnabas.records.record import Record

HEADER = BatchHeader(10, 100, 3, 2, 0xDEADBEEF, 0, 4, 1000, 2000, -1, -1, -1, 5)


def batch(base_offset: int = 0, count: int = 3) -> bytes:
    return build_batch([Record(0, 1000 + i, b"k", b"v") for i in range(count)], base_offset=base_offset)


def test_header_is_61_bytes_and_round_trips() -> None:
    packed = pack_header(HEADER)
    assert len(packed) == HEADER_SIZE
    assert read_header(packed) == HEADER
    assert read_header(b"frame" + packed, 5) == HEADER
    assert read_header(memoryview(bytearray(packed))) == HEADER


def test_what_follows_from_the_fields() -> None:
    assert HEADER.size_bytes == 112
    assert (HEADER.last_offset, HEADER.next_offset) == (14, 15)
    assert not HEADER.has_producer_id
    assert HEADER.last_sequence == -1


@pytest.mark.parametrize(
    ("bit", "name"),
    [(0x08, "is_log_append_time"), (0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_attribute_bits(bit: int, name: str) -> None:
    assert getattr(HEADER._replace(attributes=bit), name)
    assert not getattr(HEADER._replace(attributes=0xFF & ~bit), name)


@pytest.mark.parametrize("codec", range(8))
def test_compression_type(codec: int) -> None:
    assert HEADER._replace(attributes=0x78 | codec).compression_type == codec


def test_sequences_wrap_after_31_bits() -> None:
    assert increment_sequence(2**31 - 1, 0) == 2**31 - 1
    assert increment_sequence(2**31 - 1, 1) == 0
    assert HEADER._replace(producer_id=1, base_sequence=2**31 - 3, last_offset_delta=4).last_sequence == 1


@pytest.mark.parametrize("size", [0, 1, 17, HEADER_SIZE - 1])
def test_cut_off_header(size: int) -> None:
    with pytest.raises(CorruptMessage, match="cut off"):
        read_header(pack_header(HEADER)[:size])


@pytest.mark.parametrize(
    "changes", [{"magic": 1}, {"magic": 3}, {"magic": -1}, {"batch_length": 48}, {"batch_length": -5}]
)
def test_impossible_header(changes: dict[str, int]) -> None:
    with pytest.raises(CorruptMessage):
        read_header(pack_header(HEADER._replace(**changes)))


def test_checksum_covers_all_but_the_first_21_bytes() -> None:
    data = bytearray(batch())
    right = read_header(data).crc
    data[0:16] = bytes(range(16))
    assert crc_of(data) == right
    for position in range(21, len(data)):
        data[position] ^= 1
        assert crc_of(data) != right
        data[position] ^= 1


def test_known_checksum() -> None:
    # CRC-32C of 32 zero bytes: RFC 3720, appendix B.4
    assert crc_of(bytes(21 + 32)) == 0x8A9136AA


def test_set_crc_writes_what_it_returns() -> None:
    data = bytearray(batch())
    data[-1] ^= 0xFF
    crc = set_crc(data)
    assert crc == crc_of(data) == struct.unpack_from(">I", data, 17)[0]


def test_headers_one_after_the_other() -> None:
    first, second = batch(7), batch(10, 5)
    assert [header.base_offset for header in iter_headers(first + second)] == [7, 10]
    assert [bytes(data) for _, data in iter_batches(first + second)] == [first, second]
    assert list(iter_headers(b"")) == []


def test_torn_last_batch_is_left_out() -> None:
    first, second = batch(7), batch(10)
    for size in range(len(second)):
        assert len(list(iter_headers(first + second[:size]))) == 1


def test_damage_between_batches_is_not_skipped() -> None:
    first = batch()
    with pytest.raises(CorruptMessage):
        list(iter_headers(first + bytes(HEADER_SIZE) + first))
