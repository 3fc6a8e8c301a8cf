"""Makes rows of the arguments of `send_many` and `send_table`, and checks all rows before any is sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.config.definitions import nearest
from barnabas.errors import MessageTooLarge, UsageError
from barnabas.records.compiled.bulk_rows import (
    RECORD_OVERHEAD,
    BinaryBuffers,
    ColumnRows,
    ListRows,
    Rows,
    check_lists,
    header_bytes,
)
from barnabas.records.record import Headers

if TYPE_CHECKING:
    import pyarrow

__all__ = ["HeadersArgument", "RowSource", "header_pairs", "rows_of_lists", "rows_of_table"]

_COLUMNS: Final = ("value", "key", "timestamp", "partition", "headers")
_CHUNK_ROWS: Final = 8192
_CHUNK_BYTES: Final = 256 * 1024
"""The most rows, and bytes of their values, that are copied at a time, to stay in the processor's cache."""


HeadersArgument = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class RowSource(NamedTuple):
    """The checked rows of a call."""

    row_count: int
    chunks: Iterator[Rows]
    highest_partition: int
    """The highest partition number in the rows, -1 if no row has one."""


def header_pairs(headers: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Headers:
    """Returns a record's headers as pairs of str and bytes. Values of type str are encoded in UTF-8. Raises TypeError,
    and UnicodeEncodeError for half a surrogate pair."""
    pairs = []
    if not isinstance(headers, Iterable):
        raise TypeError(f"headers are a dict, or pairs of name and value, not {type(headers).__name__}")
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a header is a pair of name and value, not {pair!r:.40}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, not {type(name).__name__}")
        if not name.isascii():
            name.encode()
        if isinstance(content, str):
            content = content.encode()
        elif isinstance(content, bytearray | memoryview):
            content = bytes(content)
        elif content is not None and not isinstance(content, bytes):
            raise TypeError(f"the value of header {name!r} is bytes, str or None, not {type(content).__name__}")
        pairs.append((name, content))
    return tuple(pairs)


def rows_of_lists(
    values: list[Any],
    keys: list[Any] | None,
    timestamps: list[Any] | None,
    partitions: list[int] | None,
    headers: list[Headers] | None,
    record_max: int,
    *,
    to: int = -1,
    heads: Headers = (),
) -> RowSource:
    """Returns rows of lists; `to` and `heads` are for all rows. Raises TypeError, UsageError or MessageTooLarge, which
    name the row."""
    try:
        check_lists(values, keys, timestamps, headers, heads, record_max)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OverflowError as error:
        raise _too_large(error, record_max) from None
    rows = ListRows(values, keys, timestamps, partitions, headers, to, heads)
    return RowSource(len(values), iter([rows] if values else []), max(partitions or (), default=to))


def _too_large(text: object, record_max: int) -> MessageTooLarge:
    return MessageTooLarge(f"{text}, max.request.size and buffer.memory allow {record_max}")


def rows_of_table(table: "pyarrow.Table | pyarrow.RecordBatch", to: int, record_max: int) -> RowSource:
    """Returns rows of the columns `value`, `key` (binary or string), `timestamp` (or milliseconds as integers),
    `partition` (null: by key) and `headers` (maps, or lists of key and value); only `value` must be there.

    Raises UsageError for another column, another type, or a row that cannot be sent, MessageTooLarge for a large row.
    """
    import pyarrow as pa

    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise TypeError(f"a table to be sent is a pyarrow.Table or RecordBatch, not {type(table).__name__}")
    _check_columns(table.schema.names)
    if to >= 0 and "partition" in table.schema.names:
        raise UsageError("the table has a column `partition`: leave the argument out, or drop the column")
    parts, first = [], 0
    for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
        parts.append(_Columns(pa, batch, first))
        parts[-1].check(record_max)
        first += batch.num_rows
    highest = max((part.highest_partition for part in parts), default=-1)
    return RowSource(first, _chunks(parts, to), max(highest, to))


def _chunks(parts: "list[_Columns]", to: int) -> Iterator[Rows]:
    for part in parts:
        most = part.chunk_rows
        for start in range(0, part.count, most):
            yield part.rows(start, min(most, part.count - start), to)


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


class _Columns:
    """The columns of one Arrow batch, in the types that the kernel reads."""

    def __init__(self, pa: Any, batch: Any, first: int) -> None:
        columns = {name: batch.column(name) for name in batch.schema.names}
        self.count: int = batch.num_rows
        self.first = first
        """The number of the batch's first row in the table."""
        try:
            self.values = _as_binary(pa, "value", columns["value"])
            self.keys = _as_binary(pa, "key", columns["key"]) if "key" in columns else None
            self.timestamps = _as_numbers(pa, "timestamp", columns["timestamp"]) if "timestamp" in columns else None
            self.partitions = _as_numbers(pa, "partition", columns["partition"]) if "partition" in columns else None
        except pa.ArrowException as error:
            raise UsageError(str(error)) from None
        self.headers = _as_headers(columns["headers"], first) if "headers" in columns else None
        self.highest_partition = -1

    @property
    def chunk_rows(self) -> int:
        return max(min(_CHUNK_ROWS, _CHUNK_BYTES * self.count // (self.values.nbytes or 1)), 1)

    def check(self, record_max: int) -> None:
        """Raises an error for a row that cannot be sent."""
        from pyarrow import compute

        if self.timestamps is not None:
            self._check_numbers(compute, "timestamp", self.timestamps, "give milliseconds since 1970")
            self.timestamps = self.timestamps.fill_null(-1)
        if self.partitions is not None:
            rule = "give the number of a partition, or null for one by the key"
            self.highest_partition = self._check_numbers(compute, "partition", self.partitions, rule)
            self.partitions = self.partitions.fill_null(-1)
        lengths = [compute.binary_length(column) for column in (self.values, self.keys) if column is not None]
        heads = [header_bytes(row) for row in self.headers or ()]
        most = sum(compute.max(column).as_py() or 0 for column in lengths) + max(heads, default=0)
        if most + RECORD_OVERHEAD > record_max:
            rows = zip(
                *(column.fill_null(0).to_pylist() for column in lengths), *([heads] if heads else []), strict=True
            )
            for index, sizes in enumerate(rows):
                size = sum(sizes) + RECORD_OVERHEAD
                if size > record_max:
                    raise _too_large(f"row {self.first + index} makes a record of up to {size} bytes", record_max)

    def _check_numbers(self, compute: Any, name: str, column: Any, rule: str) -> int:
        """Returns the highest number of a column, -1 without any."""
        found = compute.min_max(column).as_py()
        if found["min"] is None:
            return -1
        if found["min"] < 0:
            row = next(index for index, number in enumerate(column.to_pylist()) if number is not None and number < 0)
            raise UsageError(f"row {self.first + row} has the {name} {column[row]}; {rule}")
        highest: int = found["max"]
        return highest

    def rows(self, start: int, count: int, to: int) -> Rows:
        """Returns the rows from `start` on, as the kernel reads them."""
        return ColumnRows(
            count,
            self.first + start,
            _buffers(self.values, start, count),
            None if self.keys is None else _buffers(self.keys, start, count),
            None if self.timestamps is None else _numbers(self.timestamps, start, count, 8),
            None if self.partitions is None else _numbers(self.partitions, start, count, 4),
            None if self.headers is None else self.headers[start : start + count],
            to,
        )


def _as_binary(pa: Any, name: str, column: Any) -> Any:
    kinds = pa.types
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    if kinds.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if not any(
        is_kind(kind)
        for is_kind in (
            kinds.is_binary,
            kinds.is_string,
            kinds.is_large_binary,
            kinds.is_large_string,
            kinds.is_binary_view,
            kinds.is_string_view,
            kinds.is_fixed_size_binary,
        )
    ):
        raise UsageError(f"column {name} is of type {column.type}; it must be binary or string")
    return column if kinds.is_binary(column.type) else column.cast(kind).cast(pa.binary())


def _as_numbers(pa: Any, name: str, column: Any) -> Any:
    kind, wanted = column.type, pa.int64() if name == "timestamp" else pa.int32()
    if name == "timestamp" and pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        also = "a timestamp or " if name == "timestamp" else ""
        raise UsageError(f"column {name} is of type {kind}; it must be {also}integer")
    return column.cast(wanted)


def _as_headers(column: Any, first: int) -> list[Headers]:
    rows: list[Headers] = []
    for index, row in enumerate(column.to_pylist()):
        try:
            pairs = [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in row or ()]
            rows.append(header_pairs(pairs))
        except (TypeError, ValueError, KeyError) as error:
            raise UsageError(
                f"headers of row {first + index}: {error}; a column of headers has maps, or lists of key and value"
            ) from None
    return rows


def _buffers(column: Any, start: int, count: int) -> BinaryBuffers:
    """Copies the parts of the buffers that the rows need: a slice of a large column has the large column's buffers."""
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
