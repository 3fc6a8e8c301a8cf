"""Many records at once, as the record sections of batches: from lists, or from an Arrow table.

What `send_many` and `send_table` stand on. A section is closed before its batch would be larger than batch.size.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.config.definitions import nearest
from barnabas.errors import UsageError
from barnabas.records.bulk_kernel import (
    BinaryBuffers,
    Headers,
    RecordSection,
    SectionWriter,
    encode_columns,
    encode_lists,
)

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BulkRules", "RecordSection", "list_sections", "table_sections"]

_COLUMNS: Final = ("value", "key", "timestamp", "partition", "headers")
_CHUNK_ROWS: Final = 8192
"""Rows whose buffers are copied at a time: with values of 100 bytes they stay in the processor's cache."""


class BulkRules(NamedTuple):
    """What holds for all records of a call."""

    partition_count: int
    sticky: int
    """Where records go that have neither key nor partition, until a batch there is full."""
    choose: Callable[[], int]
    """Then asked for the next such partition."""
    batch_size: int
    record_max: int
    """The largest record that may be sent, in bytes."""
    timestamp: int
    """Milliseconds since 1970, for records that have none of their own."""

    def writer(self) -> SectionWriter:
        return SectionWriter(self.partition_count, self.sticky, self.choose, self.batch_size, self.record_max)


def list_sections(
    rules: BulkRules,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    *,
    timestamps: Sequence[int] | None = None,
    partitions: Sequence[int] | None = None,
    headers: Sequence[Headers] | None = None,
) -> list[RecordSection]:
    """Records from lists of equal length. Raises UsageError for a row that cannot be sent; then none is."""
    writer = rules.writer()
    try:
        encode_lists(
            writer,
            _list(values),
            None if keys is None else _list(keys),
            None if timestamps is None else _list(timestamps),
            rules.timestamp,
            None if partitions is None else _list(partitions),
            None if headers is None else _list(headers),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(str(error)) from None
    return writer.finish()


def _list(items: Sequence[Any]) -> list[Any]:
    return items if type(items) is list else list(items)


def table_sections(rules: BulkRules, table: "pyarrow.Table | pyarrow.RecordBatch") -> list[RecordSection]:
    """Records from the columns `value`, `key` (binary or string), `timestamp` (or milliseconds as integers),
    `partition` (null: by key) and `headers` (maps, or lists of key and value); only `value` must be there.

    Raises UsageError for another column, another type, or a row that cannot be sent; then none is.
    """
    import pyarrow as pa

    _check_columns(table.schema.names)
    writer = rules.writer()
    batches = table.to_batches() if isinstance(table, pa.Table) else [table]
    try:
        for batch in batches:
            for chunk in _chunks(pa, rules, batch):
                encode_columns(writer, *chunk)
    except (ValueError, OverflowError) as error:
        raise UsageError(str(error)) from None
    return writer.finish()


def _check_columns(names: Sequence[str]) -> None:
    for name in names:
        if name not in _COLUMNS:
            close = nearest(name, _COLUMNS)
            hint = f"did you mean {close}?" if close else f"a table to be sent has {', '.join(_COLUMNS)}"
            raise UsageError(f"column {name} is not known: {hint}")
        if list(names).count(name) > 1:
            raise UsageError(f"column {name} is there twice")
    if "value" not in names:
        raise UsageError("the table has no column `value`; a column of nulls makes tombstones")


def _chunks(pa: Any, rules: BulkRules, batch: Any) -> Iterator[tuple[Any, ...]]:
    """The arguments of `encode_columns`, without the writer, for some rows at a time."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    values = _as_binary(pa, "value", columns["value"])
    keys = _as_binary(pa, "key", columns["key"]) if "key" in columns else None
    timestamps = _as_numbers(pa, "timestamp", columns["timestamp"], rules.timestamp) if "timestamp" in columns else None
    partitions = _as_numbers(pa, "partition", columns["partition"], -1) if "partition" in columns else None
    headers = _as_headers(columns["headers"]) if "headers" in columns else None
    for start in range(0, batch.num_rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, batch.num_rows - start)
        yield (
            count,
            _buffers(values, start, count),
            None if keys is None else _buffers(keys, start, count),
            None if timestamps is None else _numbers(timestamps, start, count, 8),
            rules.timestamp,
            None if partitions is None else _numbers(partitions, start, count, 4),
            None if headers is None else headers[start : start + count],
        )


def _as_binary(pa: Any, name: str, column: Any) -> Any:
    kinds = pa.types
    kind = column.type
    if kinds.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if not (
        kinds.is_binary(kind)
        or kinds.is_string(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_large_string(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_string_view(kind)
    ):
        raise UsageError(f"column {name} is of type {kind}; it must be binary or string")
    return column if kinds.is_binary(kind) else column.cast(pa.binary())


def _as_numbers(pa: Any, name: str, column: Any, default: int) -> Any:
    """The column as integers, without nulls."""
    kind, wanted = column.type, pa.int64() if name == "timestamp" else pa.int32()
    if name == "timestamp" and pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        also = "a timestamp or " if name == "timestamp" else ""
        raise UsageError(f"column {name} is of type {kind}; it must be {also}integer")
    return column.cast(wanted).fill_null(default)


def _as_headers(column: Any) -> list[Headers]:
    rows: list[Headers] = []
    for row in column.to_pylist():
        pairs = [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in row or ()]
        rows.append(tuple((key, value.encode() if isinstance(value, str) else value) for key, value in pairs))
    return rows


def _buffers(column: Any, start: int, count: int) -> BinaryBuffers:
    """Copies of what the rows need, and no more: a slice of a large column has the large column's buffers."""
    validity, offsets, data = column.buffers()
    first = column.offset + start
    places = offsets.slice(4 * first, 4 * (count + 1)).to_pybytes()
    begin, end = int.from_bytes(places[:4], "little"), int.from_bytes(places[-4:], "little")
    content = b"" if data is None else data.slice(begin, end - begin).to_pybytes()
    bits = None
    if validity is not None:
        bits = validity.slice(first >> 3, (first + count + 7 >> 3) - (first >> 3)).to_pybytes()
    return BinaryBuffers(places, content, bits, first & 7)


def _numbers(column: Any, start: int, count: int, size: int) -> bytes:
    data: bytes = column.buffers()[1].slice(size * (column.offset + start), size * count).to_pybytes()
    return data
