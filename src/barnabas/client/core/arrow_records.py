"""Records as Arrow batches, at the speed of memory: the kernel notes positions, `take` copies the columns in one go.

pyarrow is imported when the first batch is wanted: extra `arrow`.
"""

from array import array
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.core.columns import Columns
from barnabas.errors import UsageError
from barnabas.records.columns_kernel import BinaryColumn, RecordColumns
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["record_schema", "require_pyarrow", "to_arrow"]

_HINT: Final = "Arrow batches need pyarrow: pip install 'barnabas[arrow]'"

_INDICES_MAX: Final = 1_000_000
_indices: bytes = b""
"""What `_every_other` gave the last time; up to 4 MB are kept."""


def require_pyarrow() -> Any:
    """The module; UsageError says where it comes from."""
    try:
        import pyarrow
    except ImportError:
        raise UsageError(_HINT) from None
    return pyarrow


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
        pa.repeat(partition.topic, count),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        _numbers(pa, pa.int64(), count, columns.offsets.getvalue()),
        stamps if kind >= 0 else pa.nulls(count, stamps.type),
        pa.repeat(pa.scalar(kind, pa.int32()), count),
        _binary(pa, data, columns.keys, count),
        _binary(pa, data, columns.values, count),
    ]
    if columns.with_headers:
        arrays.append(_headers(pa, data, columns, count))
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema(headers=columns.with_headers))


def _numbers(pa: Any, kind: Any, count: int, data: bytes) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _binary(pa: Any, data: bytes, column: BinaryColumn, count: int) -> Any:
    """The column that the positions stand for: the data seen as value, gap, value, gap ..., and every other taken."""
    kind = pa.binary()
    nulls = int(column.null_count)
    if nulls == count:
        return pa.nulls(count, kind)
    seen = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(column.places()), pa.py_buffer(data)])
    validity = pa.py_buffer(column.validity()) if nulls else None
    return seen.take(pa.Array.from_buffers(pa.int32(), count, [validity, pa.py_buffer(_every_other(count))], nulls))


def _every_other(count: int) -> bytes:
    """0, 2, 4 ... as 32-bit numbers, at least `count` of them."""
    global _indices
    if len(_indices) >= 4 * count:
        return _indices
    indices = array("i", range(0, 2 * count, 2)).tobytes()
    if count <= _INDICES_MAX:
        _indices = indices
    return indices


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
