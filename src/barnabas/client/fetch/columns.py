"""Records of one partition as columns over one buffer, and as Arrow batches.

The kernel notes the positions of keys and values in the buffer, and Arrow's `take` copies each column in one go.
pyarrow is imported when the first Arrow batch is made: extra `arrow`. Arrays are made of buffers only: if pyarrow made
them of Python objects it would import pandas, where that is installed, which takes 45 MB and half a second."""

from array import array
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.client.fetch.sections import Section
from barnabas.errors import UsageError
from barnabas.records.compiled.record_columns import BinaryColumn, RecordColumns
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Columns", "columns_of", "record_schema", "require_pyarrow", "to_arrow"]

_HINT: Final = "Arrow batches need pyarrow: pip install 'barnabas[arrow]'"

PLACE_MAX: Final = 0x7FFFFFFF
"""The largest position that Arrow's 32-bit offsets can have."""
_STEPS_MAX: Final = 8
_COUNT_MAX: Final = 100_000
_multiples: Final[dict[int, bytes]] = {}
"""The longest result of `_multiples_of` for each step; up to 3 MB are kept."""
LOG_APPEND_TIME: Final = 1


class Columns(NamedTuple):
    """Records by their positions in `data`, which has their sections too."""

    data: bytes
    columns: RecordColumns
    sections: Sequence[Section]


def columns_of(sections: Sequence[Section], *, headers: bool = False) -> Columns:
    """Returns the columns of sections. Sections of several buffers are joined in one. Raises ValueError or IndexError
    if a section is broken."""
    data = sections[0].data if sections else b""
    if any(section.data is not data for section in sections):
        data, sections = _joined(sections)
    columns = RecordColumns(headers)
    for section in sections:
        columns.add_batch(
            data,
            section.position,
            section.end,
            section.record_count,
            section.base_offset,
            section.base_timestamp,
            section.append_timestamp,
            section.timestamp_type == LOG_APPEND_TIME,
            section.first_offset,
            section.last_offset,
        )
    return Columns(data, columns, sections)


def _joined(sections: Sequence[Section]) -> tuple[bytes, list[Section]]:
    data = b"".join([memoryview(section.data)[section.position : section.end] for section in sections])
    moved = []
    start = 0
    for section in sections:
        end = start + section.end - section.position
        moved.append(section._replace(data=data, position=start, end=end))
        start = end
    return data, moved


# --- Arrow ------------------------------------------------------------------------------------------------------------


def require_pyarrow() -> Any:
    """Returns the module pyarrow. Raises UsageError where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise UsageError(_HINT) from None
    return pyarrow


@cache
def record_schema(*, headers: bool = False) -> "pyarrow.Schema":
    """Returns the schema of Arrow batches: topic, partition, offset, timestamp (null in messages of version 0),
    timestamp_type, key, value and, if asked for, headers as lists of key and value."""
    pa = require_pyarrow()
    fields = [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
    if headers:
        fields.append(pa.field("headers", _header_type(pa), nullable=False))
    return pa.schema(fields)


@cache
def _header_type(pa: Any) -> Any:
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", pair, nullable=False))


def to_arrow(partition: TopicPartition, records: Columns) -> "pyarrow.RecordBatch":
    """Returns the records as an Arrow batch. All sections must have the same type of timestamp."""
    pa = require_pyarrow()
    data, columns, sections = records
    count = int(columns.count)
    kind = sections[0].timestamp_type if sections else 0
    stamps = _numbers(pa, pa.timestamp("ms", tz="UTC"), count, columns.timestamps.getvalue())
    arrays = [
        _repeated_text(pa, partition.topic, count),
        _numbers(pa, pa.int32(), count, _int32(partition.partition) * count),
        _numbers(pa, pa.int64(), count, columns.offsets.getvalue()),
        stamps if kind >= 0 else pa.nulls(count, stamps.type),
        _numbers(pa, pa.int32(), count, _int32(kind) * count),
        _binary(pa, data, columns.keys, count),
        _binary(pa, data, columns.values, count),
    ]
    if columns.with_headers:
        arrays.append(_headers(pa, data, columns, count))
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema(headers=columns.with_headers))


def _numbers(pa: Any, kind: Any, count: int, data: bytes) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def _repeated_text(pa: Any, text: str, count: int) -> Any:
    data = text.encode()
    places = pa.py_buffer(_multiples_of(len(data), count + 1))
    return pa.Array.from_buffers(pa.string(), count, [None, places, pa.py_buffer(data * count)])


def _binary(pa: Any, data: bytes, column: BinaryColumn, count: int) -> Any:
    """Returns the array of a column of positions: the buffer is read as value, gap, value, gap ..., and every other
    item is taken."""
    kind = pa.binary()
    nulls = int(column.null_count)
    if nulls == count:
        nothing, places = pa.py_buffer(bytes(count + 7 >> 3)), pa.py_buffer(bytes(4 * count + 4))
        return pa.Array.from_buffers(kind, count, [nothing, places, pa.py_buffer(b"")], count)
    seen = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(column.places()), pa.py_buffer(data)])
    validity = pa.py_buffer(column.validity()) if nulls else None
    every_other = pa.py_buffer(_multiples_of(2, count))
    return _take(seen, pa.Array.from_buffers(pa.int32(), count, [validity, every_other], nulls))


def _take(values: Any, indices: Any) -> Any:
    call_function, options = _compute()
    return call_function("take", [values, indices], options)


@cache
def _compute() -> tuple[Any, Any]:
    """Returns the core of pyarrow.compute, whose own import takes long: it makes a function for each kernel."""
    try:
        from pyarrow._compute import TakeOptions, call_function
    except ImportError:
        from pyarrow.compute import TakeOptions, call_function
    return call_function, TakeOptions(boundscheck=False)


def _multiples_of(step: int, count: int) -> bytes:
    """Returns 0, step, 2 * step ... as 32-bit numbers, at least `count` of them."""
    known = _multiples.get(step, b"")
    if len(known) >= 4 * count:
        return known
    if step * count > PLACE_MAX:
        raise UsageError("these are too many records for one Arrow batch: seek to the first of them, and poll")
    found = array("i", range(0, step * count, step)).tobytes() if step else bytes(4 * count)
    if count <= _COUNT_MAX:
        if len(_multiples) >= _STEPS_MAX:
            _multiples.clear()
        _multiples[step] = found
    return found


def _headers(pa: Any, data: bytes, columns: RecordColumns, count: int) -> Any:
    kind = _header_type(pa)
    places = columns.headers.getvalue()
    total = int.from_bytes(places[-4:], "little")
    names = _binary(pa, data, columns.header_keys, total)
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:
        # not UTF-8: as the records one by one have it
        keys = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays(
        [keys, _binary(pa, data, columns.header_values, total)], fields=list(kind.value_type)
    )
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(places)], 0, 0, [pairs])
