"""The columns of a topic, as Spark's Kafka connector names them, and our Arrow batches brought into their form."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.config.definitions import nearest
from barnabas.errors import UsageError

__all__ = ["Columns", "record_schema"]

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_FIELDS: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
_OURS: Final = {"timestampType": "timestamp_type"}
"""Where our client has another name."""
_MICROS_MAX: Final = 2**63 // 1000 - 1


def record_schema(*, headers: bool) -> StructType:
    """All columns; `headers` if they are asked for."""
    return StructType([StructField(name, kind) for name, kind in _FIELDS.items() if headers or name != "headers"])


class Columns:
    """The columns that a query asked for: all, or those of its own `.schema(...)`."""

    def __init__(self, schema: StructType) -> None:
        """Raises UsageError for columns that topics do not have."""
        for field in schema.fields:
            if field.name not in _FIELDS:
                close = nearest(field.name, _FIELDS)
                hint = f"did you mean {close}?" if close else f"there are {', '.join(_FIELDS)}"
                raise UsageError(f"a topic has no column {field.name!r}: {hint}")
            if field.dataType != _FIELDS[field.name]:
                has = _FIELDS[field.name].simpleString()
                raise UsageError(
                    f"column {field.name} is {has}, not {field.dataType.simpleString()}; convert it in the query, by"
                    " cast or from_json"
                )
        self.schema = schema
        self.with_headers = "headers" in schema.names
        self._arrow: pa.Schema | None = None
        self._take: list[Callable[[pa.RecordBatch], pa.Array]] = []

    def __getstate__(self) -> StructType:
        return self.schema

    def __setstate__(self, schema: StructType) -> None:
        self.__init__(schema)  # type: ignore[misc]

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of our client's in the form that Spark wants, to the letter of its schema."""
        if self._arrow is None:
            self._arrow = to_arrow_schema(self.schema, timezone="UTC")
            self._take = [_taking(field) for field in self._arrow]
        return pa.RecordBatch.from_arrays([take(batch) for take in self._take], schema=self._arrow)


def _taking(field: pa.Field) -> Callable[[pa.RecordBatch], pa.Array]:
    name = _OURS.get(field.name, field.name)
    if name == "timestamp":
        return lambda batch: _micros(batch.column(name), field.type)
    if name == "headers":
        return lambda batch: _relabelled(batch.column(name), field.type)
    return lambda batch: batch.column(name)


def _micros(millis: pa.Array, kind: Any) -> pa.Array:
    """Spark counts in microseconds. A time that does not fit (some producers send nanoseconds) becomes null: it must
    not keep a query from its other records."""
    try:
        return millis.cast(kind)
    except pa.ArrowInvalid:
        numbers = millis.cast(pa.int64())
        fits = pc.and_(pc.less_equal(numbers, _MICROS_MAX), pc.greater_equal(numbers, -_MICROS_MAX))
        return pc.if_else(fits, numbers, None).cast(millis.type).cast(kind)


def _relabelled(headers: pa.Array, kind: Any) -> pa.Array:
    """The same buffers under Spark's names and nullability."""
    pairs = headers.values
    struct = kind.value_type
    renamed = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(struct))
    return pa.ListArray.from_arrays(headers.offsets, renamed, type=kind)
