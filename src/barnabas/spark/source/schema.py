"""The columns of a topic, as Spark's Kafka connector names them, and our Arrow batches brought into their form."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.config.definitions import nearest
from barnabas.errors import UsageError
from barnabas.spark.formats.inference import ddl_of
from barnabas.spark.formats.options import CORRUPT, FormatOptions
from barnabas.spark.formats.values import ValueParser, keys_to_strings, make_decoder

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
"""Columns that have another name in our client's batches."""
_MICROS_MAX: Final = 2**63 // 1000 - 1
_AS_THEY_ARE: Final = FormatOptions()


def record_schema(*, headers: bool, format_options: FormatOptions = _AS_THEY_ARE) -> StructType | str:
    """Returns the schema of all columns, with `headers` if they are asked for; a text where only Spark can read the
    type of values."""
    kinds = {**_FIELDS, "key": _key_type(format_options), "value": format_options.value_type or BinaryType()}
    if format_options.is_parsed:
        kinds[CORRUPT] = BinaryType()
    names = [name for name in kinds if headers or name != "headers"]
    ddl = format_options.ddl()
    if ddl is None:
        return StructType([StructField(name, kinds[name]) for name in names])
    return ", ".join(f"`{name}` {ddl if name == 'value' else ddl_of(kinds[name])}" for name in names)


def _key_type(format_options: FormatOptions) -> DataType:
    return StringType() if format_options.key == "string" else BinaryType()


class Columns:
    """The columns that a query asked for: all, or those of its own `.schema(...)`."""

    def __init__(self, schema: StructType, format_options: FormatOptions = _AS_THEY_ARE) -> None:
        """Raises UsageError for columns that topics do not have."""
        for field in schema.fields:
            _check(field, format_options)
        self.format_options = format_options
        self.schema = schema
        self.with_headers = "headers" in schema.names
        self._arrow: pa.Schema | None = None
        self._take: list[Callable[[pa.RecordBatch], pa.Array]] = []
        self._parser: ValueParser | None = None
        if format_options.is_parsed and not {"value", CORRUPT}.isdisjoint(schema.names):
            self._parser = _parser(schema, format_options)

    def __getstate__(self) -> tuple[StructType, FormatOptions]:
        return self.schema, self.format_options

    def __setstate__(self, state: tuple[StructType, FormatOptions]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns a batch of our client's with exactly the query's schema."""
        if self._arrow is None:
            self._arrow = to_arrow_schema(self.schema, timezone="UTC")
            self._take = [_taking(field) for field in self._arrow]
        if self._parser is not None:
            batch = _parsed(batch, self._parser)
        return pa.RecordBatch.from_arrays([take(batch) for take in self._take], schema=self._arrow)


def _parser(schema: StructType, format_options: FormatOptions) -> ValueParser:
    """Returns the parser of values, also if only `_corrupt` is wanted: that column needs them parsed."""
    kind = schema["value"].dataType if "value" in schema.names else format_options.value_type
    if kind is None:
        raise UsageError(f"column {CORRUPT} needs the schema of values: add option valueSchema, or the column value")
    return ValueParser(format_options, make_decoder(format_options, to_arrow_type(kind, timezone="UTC")))


def _parsed(batch: pa.RecordBatch, parser: ValueParser) -> pa.RecordBatch:
    found = parser.parse(batch)
    names = [*batch.schema.names, CORRUPT]
    columns = [found.values if name == "value" else batch.column(name) for name in names[:-1]]
    return pa.RecordBatch.from_arrays([*columns, found.corrupt], names=names)


def _check(field: StructField, format_options: FormatOptions) -> None:
    """Raises UsageError for a column that topics do not have, or not with this type."""
    name, kind = field.name, field.dataType
    known = [*_FIELDS, CORRUPT] if format_options.is_parsed else list(_FIELDS)
    if name not in known:
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(known)}"
        raise UsageError(f"a topic has no column {name!r}: {hint}")
    if name == "value" and format_options.value == "json":
        if not isinstance(kind, StructType):
            raise UsageError(f"column value is a struct with valueFormat=json, not {kind.simpleString()}")
        _check_nullable(kind, "value")
        return
    expected = {**_FIELDS, CORRUPT: BinaryType(), "key": _key_type(format_options)}[name]
    if name == "value" and format_options.value_type is not None:
        expected = format_options.value_type
    if kind.simpleString() != expected.simpleString():
        format_hint = (
            ", or read it so by option valueFormat" if name == "value" and not format_options.is_parsed else ""
        )
        raise UsageError(
            f"column {name} is {expected.simpleString()}, not {kind.simpleString()}; convert it in the query, by"
            f" cast or from_json{format_hint}"
        )


def _check_nullable(kind: DataType, path: str) -> None:
    """Raises UsageError for a field that is `not null`: a producer may leave it out."""
    children: list[tuple[str, DataType, bool]] = []
    if isinstance(kind, StructType):
        children = [(f"{path}.{field.name}", field.dataType, field.nullable) for field in kind]
    elif isinstance(kind, ArrayType):
        children = [(f"{path}[]", kind.elementType, kind.containsNull)]
    elif isinstance(kind, MapType):
        children = [(f"{path}[]", kind.valueType, kind.valueContainsNull)]
    for name, child, nullable in children:
        if not nullable:
            raise UsageError(f"{name} is `not null` in the schema, but a message may lack it: leave `not null` out")
        _check_nullable(child, name)


def _taking(field: pa.Field) -> Callable[[pa.RecordBatch], pa.Array]:
    name = _OURS.get(field.name, field.name)
    if name == "timestamp":
        return lambda batch: _micros(batch.column(name), field.type)
    if name == "key" and pa.types.is_string(field.type):
        return lambda batch: keys_to_strings(batch.column(name))
    if name == "headers":
        return lambda batch: _relabelled(batch.column(name), field.type)
    return lambda batch: batch.column(name)


def _micros(millis: pa.Array, kind: Any) -> pa.Array:
    """Returns times in microseconds. A time that does not fit (some producers send nanoseconds) becomes null: the query
    still gets its other records."""
    try:
        return millis.cast(kind)
    except pa.ArrowInvalid:
        import pyarrow.compute as pc  # 50 ms for each process that plans

        numbers = millis.cast(pa.int64())
        fits = pc.and_(pc.less_equal(numbers, _MICROS_MAX), pc.greater_equal(numbers, -_MICROS_MAX))
        return pc.if_else(fits, numbers, None).cast(millis.type).cast(kind)


def _relabelled(headers: pa.Array, kind: Any) -> pa.Array:
    """Returns the same buffers with Spark's names and nullability."""
    pairs = headers.values
    struct = kind.value_type
    renamed = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(struct))
    return pa.ListArray.from_arrays(headers.offsets, renamed, type=kind)
