"""Bulk encoding: what goes in as lists or columns comes out of the batches again, at its partition and in order."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.core import bulk
from barnabas.client.core.bulk import BulkRules, RecordSection, list_sections, table_sections
from barnabas.client.partitioner import murmur2_partition
from barnabas.errors import UsageError
from barnabas.records import bulk_kernel
from barnabas.records.batch import CHECKED, PREFIX
from barnabas.records.bulk_kernel import murmur2
from barnabas.records.reader import read_records
from barnabas.records.record import Headers, Record

from .kernel_forms import SOURCE_BULK

NAMES = ("BinaryBuffers", "SectionWriter", "encode_columns", "encode_lists")
T0 = 1_700_000_000_000


@pytest.fixture(params=["compiled", "source"], scope="module", autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    compiled = request.param == "compiled"
    if compiled and not bulk_kernel.is_compiled():
        pytest.skip("the kernels are not compiled here")
    for name in NAMES:
        setattr(bulk, name, getattr(bulk_kernel if compiled else SOURCE_BULK, name))
    yield request.param
    for name in NAMES:
        setattr(bulk, name, getattr(bulk_kernel, name))


def rules(partitions: int = 3, batch_size: int = 300, record_max: int = 1000, choose: Any = None) -> BulkRules:
    turn = iter(range(1, 10**6))
    return BulkRules(partitions, 0, choose or (lambda: next(turn) % partitions), batch_size, record_max, T0)


def records_in(section: RecordSection) -> list[Record]:
    """Put a header in front and read it like any batch."""
    count = section.record_count
    checked = CHECKED.pack(0, count - 1, section.base_timestamp, section.max_timestamp, -1, -1, -1, count)
    crc = crc32c(section.records, crc32c(checked))
    batch = PREFIX.pack(0, 49 + len(section.records), 0, 2, crc) + checked + section.records
    assert section.size_bytes == len(batch)
    records = read_records(batch)
    assert [record.offset for record in records] == list(range(count))
    assert max(record.timestamp for record in records) == section.max_timestamp
    assert records[0].timestamp == section.base_timestamp
    return records


def by_partition(sections: list[RecordSection]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for section in sections:
        found.setdefault(section.partition, []).extend(record._replace(offset=0) for record in records_in(section))
    return found


fields = st.none() | st.binary(max_size=150)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple)
rows = st.lists(
    st.tuples(fields, fields, st.integers(T0 - 5, T0 + 10**10), st.sampled_from([-1, -1, 0, 1, 2]), header_lists),
    max_size=40,
)
Row = tuple[bytes | None, bytes | None, int, int, Headers]


def check(sections: list[RecordSection], given_rows: list[Row]) -> None:
    """Everything once; explicit partitions and those of keys are kept, and the order within each partition."""
    found = by_partition(sections)
    expected: dict[int, list[Record]] = {}
    unkeyed = []
    for key, value, timestamp, partition, headers in given_rows:
        record = Record(0, timestamp, key, value, headers)
        if partition == -1 and key is None:
            unkeyed.append(record)
        else:
            chosen = murmur2_partition(key or b"", 3) if partition == -1 else partition
            expected.setdefault(chosen, []).append(record)
    for partition, records in expected.items():
        rest = iter(found.get(partition, []))
        assert all(any(candidate == record for candidate in rest) for record in records), "in order"
    everything = sorted((r for part in found.values() for r in part), key=repr)
    assert everything == sorted([*unkeyed, *(r for part in expected.values() for r in part)], key=repr)
    for section in sections:
        assert section.record_count == 1 or section.size_bytes <= 300


@settings(max_examples=80, deadline=None)
@given(rows)
def test_lists(given_rows: list[Row]) -> None:
    columns = [list(column) for column in zip(*given_rows, strict=True)] or [[], [], [], [], []]
    keys, values, timestamps, partitions, headers = columns
    sections = list_sections(rules(), values, keys, timestamps=timestamps, partitions=partitions, headers=headers)
    check(sections, given_rows)


@settings(max_examples=80, deadline=None)
@given(rows, st.integers(0, 12), st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]), st.booleans())
def test_tables(given_rows: list[Row], offset: int, kind: pa.DataType, maps: bool) -> None:
    header_type = pa.map_(pa.string(), pa.binary()) if maps else pa.list_(
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    )  # fmt: skip
    pairs = [list(row[4]) if maps else [{"key": k, "value": v} for k, v in row[4]] for row in given_rows]
    table = pa.table(
        {
            "key": pa.array([row[0] for row in given_rows], kind),
            "value": pa.array([row[1] for row in given_rows], kind),
            "timestamp": pa.array([row[2] for row in given_rows], pa.timestamp("ms", tz="UTC")),
            "partition": pa.array([None if row[3] == -1 else row[3] for row in given_rows], pa.int32()),
            "headers": pa.array(pairs, header_type),
        }
    )
    check(table_sections(rules(), table.slice(offset)), given_rows[offset:])
    chunked = pa.concat_tables([table.slice(0, offset), table.slice(offset)])
    check(table_sections(rules(), chunked), given_rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(62, 800))
def test_batches_are_filled_but_not_beyond(sizes: list[int], batch_size: int) -> None:
    values = [bytes(size) for size in sizes]
    sections = list_sections(rules(1, batch_size, choose=lambda: 0), values)
    assert [record.value for section in sections for record in records_in(section)] == values
    sizes_of = [section.size_bytes for section in sections]
    assert all(section.record_count == 1 or section.size_bytes <= batch_size for section in sections)
    for before, after in pairwise(sections):
        first = records_in(after)[0].value
        assert first is not None
        assert before.size_bytes + len(first) + 32 > batch_size, (sizes_of, batch_size)


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    chosen = iter([2, 1, 0, 2])
    sections = list_sections(rules(3, 310, choose=lambda: next(chosen)), [bytes(100)] * 7)
    assert [(section.partition, section.record_count) for section in sections] == [(0, 2), (2, 2), (1, 2), (0, 1)]


def test_all_from_the_rules_where_nothing_is_given() -> None:
    (section,) = list_sections(rules(), [b"a", None])
    assert records_in(section) == [Record(0, T0, None, b"a"), Record(1, T0, None, None)]
    (section,) = table_sections(rules(), pa.record_batch({"value": ["text", None]}))
    assert records_in(section) == [Record(0, T0, None, b"text"), Record(1, T0, None, None)]
    assert list_sections(rules(), []) == []


def test_many_chunks() -> None:
    values = [b"%d" % number for number in range(20_000)]
    sections = table_sections(rules(1, 16_384), pa.table({"value": values, "timestamp": range(20_000)}))
    records = [record for section in sections for record in records_in(section)]
    assert [record.value for record in records] == values
    assert [record.timestamp for record in records] == list(range(20_000))


def test_timestamps_of_other_units() -> None:
    column = pa.array([1_700_000_000_123_999, None], pa.timestamp("us"))
    (section,) = table_sections(rules(), pa.table({"value": ["a", "b"], "timestamp": column}))
    assert [record.timestamp for record in records_in(section)] == [1_700_000_000_123, T0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([b"a", "b"],), "the value of row 1 is bytes or None, not str"),
        (([b"a"], [7]), "the key of row 0 is bytes or None, not int"),
        (([b"a"], [b"a", b"b"]), "1 values, but 2 keys"),
        (([b"a", bytes(1000)],), "row 1 makes a record of up to 1032 bytes, 1000 are allowed"),
    ],
)
def test_rows_that_cannot_be_sent(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list_sections(rules(), *arguments)


def test_rows_with_impossible_numbers() -> None:
    with pytest.raises(UsageError, match="row 1 is for partition 3, there are 0 to 2"):
        list_sections(rules(), [b"a", b"b"], partitions=[0, 3])
    with pytest.raises(UsageError, match="row 0 is for partition -2"):
        list_sections(rules(), [b"a"], partitions=[-2])
    with pytest.raises(UsageError, match="row 0 has the timestamp -5"):
        list_sections(rules(), [b"a"], timestamps=[-5])
    with pytest.raises(ValueError, match="there is no partition 4, only 0 to 2"):
        rules()._replace(sticky=4).writer()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"valu": ["a"]}, "column valu is not known: did you mean value"),
        ({"value": ["a"], "offset": [1]}, "a table to be sent has value, key, timestamp, partition, headers"),
        ({"key": ["a"]}, "no column `value`"),
        ({"value": [1]}, "column value is of type int64; it must be binary or string"),
        ({"value": ["a"], "timestamp": ["b"]}, "column timestamp is of type string; it must be a timestamp or integer"),
        ({"value": ["a"], "partition": [0.5]}, "column partition is of type double; it must be integer"),
        ({"value": ["a"], "partition": [2**40]}, "Integer value 1099511627776 not in range"),
    ],
)
def test_tables_that_cannot_be_sent(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table_sections(rules(), pa.table(columns))


def test_bytearrays_and_views_are_taken() -> None:
    (section,) = list_sections(rules(), [bytearray(b"a"), memoryview(b"b")])  # type: ignore[list-item]
    assert [record.value for record in records_in(section)] == [b"a", b"b"]


def test_murmur2_forms_agree() -> None:
    rng = random.Random(3)
    for size in range(200):
        data = rng.randbytes(size)
        assert murmur2(data) == SOURCE_BULK.murmur2(data)
