"""Records as Arrow batches, at the speed of memory: the kernel notes positions, `take` copies the columns in one go.

pyarrow is imported when the first batch is wanted: extra `arrow`. Arrays are made of buffers only. Of Python's objects
pyarrow would make them with the help of pandas, where that is installed: 45 MB and half a second.
"""

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.fetch.columns import Columns
from barnabas.errors import UsageError
from barnabas.records.columns_kernel import BinaryColumn, RecordColumns
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["record_schema", "require_pyarrow", "to_arrow"]

_HINT: Final = "Arrow batches need pyarrow: pip install 'barnabas[arrow]'"

PLACE_MAX: Final = 0x7FFFFFFF
"""Arrow's strings lie within so many bytes."""
_STEPS_MAX: Final = 8
_COUNT_MAX: Final = 100_000
_multiples: Final[dict[int, bytes]] = {}
"""What `_multiples_of` gave the last time, by step; up to 3 MB are kept."""


def require_pyarrow() -> Any:
    """The module; UsageError says where it comes from."""
    try:
        import pyarrow
    except ImportError:
        raise UsageError(_HINT) from None
    return pyarrow


@cache
def record_schema(*, headers: bool = False) -> "pyarrow.Schema":
    """topic, partition, offset, timestamp (null in messages of version 0), timestamp_type, key, value; `headers`, if
    asked for, as lists of key and value."""
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
    """The records, whose sections have one type of timestamp; with headers if the columns have them."""
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
    """The column that the positions stand for: the data seen as value, gap, value, gap ..., and every other taken."""
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
    """What pyarrow.compute stands on, without the functions and their texts that it makes when it is imported."""
    try:
        from pyarrow._compute import TakeOptions, call_function
    except ImportError:
        from pyarrow.compute import TakeOptions, call_function
    return call_function, TakeOptions(boundscheck=False)


def _multiples_of(step: int, count: int) -> bytes:
    """0, step, 2 * step ... as 32-bit numbers, at least `count` of them."""
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
