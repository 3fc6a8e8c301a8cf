"""Reads all records of a completed fetch: one by one, as batches and as Arrow batches."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from barnabas.client.fetch.columns import record_schema
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.records.record import Record
from barnabas.types import TopicPartition

WHERE = TopicPartition("topic", 3)
T0 = 1_700_000_000_000


def some(count: int, base: int = 0) -> list[Record]:
    return [Record(base + i, T0 + i, b"k%d" % i, b"value %d" % i) for i in range(count)]


def plain(records: Sequence[Any]) -> list[Record]:
    return [Record(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


def read_all(fetch: CompletedFetch, limit: int = 500) -> list[Record]:
    found: list[Record] = []
    while records := fetch.read(limit):
        assert len(records) <= limit
        assert all((r.topic, r.partition) == WHERE for r in records)
        assert fetch.next_offset >= records[-1].offset + 1
        found += plain(records)
    return found


def arrow_all(fetch: CompletedFetch, size_bytes: int = 1024, *, with_headers: bool = True) -> list[Record]:
    found: list[Record] = []
    while (batch := fetch.read_arrow(headers=with_headers, size_bytes=size_bytes)) is not None:
        assert batch.schema == record_schema(headers=with_headers)
        batch.validate(full=True)
        rows = batch.drop_columns("timestamp").to_pydict()
        assert set(rows["topic"]) == {WHERE.topic}
        assert set(rows["partition"]) == {WHERE.partition}
        stamps = batch.column("timestamp").cast(pa.int64()).fill_null(-1).to_pylist()
        pairs = rows.get("headers", [()] * batch.num_rows)
        found += [
            Record(offset, stamp, key, value, tuple((pair["key"], pair["value"]) for pair in pairs_of))
            for offset, stamp, key, value, pairs_of in zip(
                rows["offset"], stamps, rows["key"], rows["value"], pairs, strict=True
            )
        ]
    return found


def batch_all(fetch: CompletedFetch, size_bytes: int = 1024) -> list[Record]:
    """By batches, whose columns must agree with their records."""
    found: list[Record] = []
    while (batch := fetch.read_batch(size_bytes=size_bytes)) is not None:
        keys, values = batch.keys(), batch.values()
        assert len(batch) == len(keys) == len(values) > 0
        records = list(batch)
        assert [record.key for record in records] == keys == batch.keys()
        assert [record.value for record in records] == values == batch.values()
        assert all((r.topic, r.partition) == WHERE == (batch.topic, batch.partition) for r in records)
        assert fetch.next_offset >= records[-1].offset + 1
        found += plain(records)
    return found
