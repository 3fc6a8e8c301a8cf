"""Records of fetched batches as columns of positions."""

from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walks import Walks

from barnabas.records.builder import build_batch
from barnabas.records.record import Record

T0 = 1_700_000_000_000


@given(st.lists(st.none() | st.binary(max_size=5), max_size=40))
def test_a_column_is_its_list(walks: Walks, values: list[bytes | None]) -> None:
    column, data = walks.columns.BinaryColumn(), b""
    for value in values:
        if value is None:
            column.add_null(len(data))
        else:
            column.add(len(data), len(data) + len(value))
            data += value
    assert column.of(data) == values
    assert column.null_count == values.count(None)
    places = unpack(f"<{2 * len(values)}i", column.places())
    assert [end - start for start, end in zip(places[::2], places[1::2], strict=True)] == [
        len(v or b"") for v in values
    ]
    if 0 < column.null_count < len(values):
        bits = int.from_bytes(column.validity(), "little")
        assert [bool(bits >> at & 1) for at in range(len(values))] == [value is not None for value in values]


def test_batches_follow_each_other_and_begin_where_it_is_asked_for(walks: Walks) -> None:
    batches = [
        build_batch([Record(0, T0 + n, b"k", b"%d" % (base + n)) for n in range(4)], base_offset=base)
        for base in (0, 4)
    ]
    data, columns = b"".join(batches), walks.columns.RecordColumns(False)
    columns.add_batch(data, 61, len(batches[0]), 4, 0, T0, -1, False, 2, 3)
    columns.add_batch(data, len(batches[0]) + 61, len(data), 4, 4, T0, 99, True, 2, 7)
    assert columns.count == 6
    assert unpack("<6q", columns.offsets.getvalue()) == (2, 3, 4, 5, 6, 7)
    assert unpack("<6q", columns.timestamps.getvalue()) == (T0 + 2, T0 + 3, 99, 99, 99, 99)
    assert columns.values.of(data) == [b"2", b"3", b"4", b"5", b"6", b"7"]
    assert columns.keys.of(data) == [b"k"] * 6


@pytest.mark.parametrize(("count", "last_offset", "reason"), [(3, 3, "follow the last"), (4, 2, "beyond its batch")])
def test_a_batch_that_does_not_fit_its_header(walks: Walks, count: int, last_offset: int, reason: str) -> None:
    data = build_batch([Record(0, T0, b"k", b"v")] * 4)
    with pytest.raises(ValueError, match=reason):
        walks.columns.RecordColumns(True).add_batch(data, 61, len(data), count, 0, T0, -1, False, 0, last_offset)
