"""Varints, texts, counts and tagged fields by themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import primitives
from barnabas.protocol.primitives import MalformedMessage, Part, TooManyElements


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_varints(value: int, behind: bytes) -> None:
    data = primitives.uvarint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert primitives.read_uvarint(data + behind, 0) == (value, len(data))
    assert primitives.read_uvarint(memoryview(b"x" + data), 1) == (value, len(data) + 1)
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            primitives.read_uvarint(data[:cut], 0)


def test_a_varint_has_five_bytes_at_most() -> None:
    with pytest.raises(MalformedMessage, match="five bytes"):
        primitives.read_uvarint(b"\xff\xff\xff\xff\xff\x01", 0)


@pytest.mark.parametrize(("data", "found"), [(b"\1", (0, 1)), (b"\x80\1", (127, 2)), (b"\x7f", (126, 1))])
def test_sizes_are_one_more_on_the_wire(data: bytes, found: tuple[int, int]) -> None:
    assert primitives.read_size(data, 0) == found


def test_null_has_no_size() -> None:
    with pytest.raises(IndexError):
        primitives.read_size(b"\0", 0)


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=200), max_size=5))
def test_tagged_fields_are_skipped(fields: dict[int, bytes]) -> None:
    data = primitives.uvarint(len(fields))
    for tag, content in fields.items():
        data += primitives.uvarint(tag) + primitives.uvarint(len(content)) + content
    assert primitives.skip_tags(b"head" + data + b"rest", 4) == 4 + len(data)
    if fields and content:
        with pytest.raises(MalformedMessage, match="past the end"):
            primitives.skip_tags(data[:-1], 0)


def test_tagged_fields_are_bounded() -> None:
    with pytest.raises(TooManyElements):
        primitives.skip_tags(primitives.uvarint(primitives.REQUEST_ELEMENTS_MAX + 1) + bytes(10), 0)


@pytest.mark.parametrize("flexible", [True, False])
@given(st.none() | st.text(max_size=200))
def test_texts(flexible: bool, value: str | None) -> None:
    out = bytearray(b"head")
    primitives.put_text(out, value, flexible)
    if flexible:
        size, position = (-1, 5) if value is None else primitives.read_size(bytes(out), 4)
    else:
        size, position = int.from_bytes(out[4:6], "big", signed=True), 6
    assert (out[position:].decode() if size >= 0 else None) == value
    assert size == (-1 if value is None else len(out) - position)


@pytest.mark.parametrize(("flexible", "data"), [(True, b"\x81\1"), (False, b"\0\0\0\x80")])
def test_counts(flexible: bool, data: bytes) -> None:
    out = bytearray()
    primitives.put_count(out, 128, flexible)
    assert out == data


def test_a_part_is_not_copied() -> None:
    part = Part(b"0123456789", 2, 5)
    assert (len(part), bytes(part)) == (3, b"234")
