"""Rows that are sent in bulk, from lists and from Arrow's buffers; Kafka's murmur2."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walks import Walks

from barnabas.records.compiled.bulk_rows import murmur2
from client.fetch.source_kernels import SOURCE_BULK


@given(st.lists(st.none() | st.binary(max_size=9), min_size=1, max_size=30), st.data())
def test_buffers_are_their_column(walks: Walks, values: list[bytes | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values) - 1))
    column = pa.array(values, pa.binary()).slice(first)
    validity, offsets, content = column.buffers()
    starts = offsets.to_pybytes()[4 * first :]
    begin = int.from_bytes(starts[:4], "little")
    bitmap = None if validity is None else validity.to_pybytes()
    buffers = walks.bulk.BinaryBuffers(starts, b"" if content is None else content.to_pybytes()[begin:], bitmap, first)
    assert [buffers.get(index) for index in range(len(column))] == values[first:]
    rows = walks.bulk.ColumnRows(len(column), first, buffers, to=5)
    assert (rows.keyed, rows.stamped, rows.placed, rows.headed, rows.to, rows.base) == (False,) * 4 + (5, first)
    assert rows.value(0) == values[first]


def test_rows_of_lists(walks: Walks) -> None:
    rows = walks.bulk.ListRows([b"a", None, bytearray(b"c")], [memoryview(b"k"), None, b"l"], [1, 2, 3], [0, -1, 1])
    assert [(rows.key(n), rows.value(n), rows.timestamp(n), rows.partition(n)) for n in range(rows.count)] == [
        (b"k", b"a", 1, 0),
        (None, None, 2, -1),
        (b"l", b"c", 3, 1),
    ]


@pytest.mark.parametrize(
    ("values", "keys", "stamps", "error", "reason"),
    [
        ([b"a", "b"], None, None, TypeError, r"values\[1\] is bytes or None, not str"),
        ([b"a"], [1], None, TypeError, r"keys\[0\] is bytes or None, not int"),
        ([b"a"], None, ["now"], TypeError, r"timestamps\[0\] is milliseconds since 1970 as int, not str"),
        ([b"a", b"b"], None, [0, -1], ValueError, r"timestamps\[1\] is -1"),
        ([b"a", b"b" * 70], None, None, OverflowError, "row 1 makes a record of up to 102 bytes"),
    ],
)
def test_the_first_row_that_cannot_be_sent_is_named(
    walks: Walks, values: list[Any], keys: Any, stamps: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        walks.bulk.check_lists(values, keys, stamps, None, (), 100)
    walks.bulk.check_lists([b"a", None, memoryview(b"c")], None, [0, 2**63 - 1, 5], [(), (("h", b"x"),), ()], (), 100)


def test_headers_take_their_most_bytes(walks: Walks) -> None:
    assert walks.bulk.header_bytes(()) == 0
    assert walks.bulk.header_bytes((("key", b"12345"), ("k", None))) == 4 * 4 + 2 * 10 + 5


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(walks: Walks, key: bytes, expected: int) -> None:
    """Kafka's own vectors (its UtilsTest)."""
    assert walks.bulk.murmur2(key) == expected


def test_murmur2_forms_agree() -> None:
    rng = random.Random(3)
    for size in range(200):
        data = rng.randbytes(size)
        assert murmur2(data) == SOURCE_BULK.murmur2(data)
