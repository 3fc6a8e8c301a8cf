"""Maps Avro schemas to Spark's types and to the shapes of fastavro's values, by the rules of Spark's from_avro.

fastavro would decode times to Python's objects, which is slow, and their years are fewer than Spark's. So fastavro gets
the schemas without logical types, and Arrow converts the numbers to times.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.errors import UsageError
from barnabas.spark.formats.shapes import Shape, leaf, list_shape, map_shape, struct_shape

__all__ = ["avro_shape", "parse_schema", "reading_schema", "require_fastavro", "value_type"]

_PRIMITIVE: Final[dict[str, DataType]] = {
    "null": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
_WIDER: Final = ({"int", "long"}, {"float", "double"})
"""Unions of two types that Spark reads as the wider one."""
_DECIMAL_MAX: Final = 38


def require_fastavro(value_format: str = "avro") -> Any:
    """Returns the module. Raises UsageError if it is not installed."""
    try:
        import fastavro
        import fastavro.schema
    except ImportError:
        raise UsageError(f"valueFormat={value_format} needs fastavro: pip install 'barnabas[spark-formats]'") from None
    return fastavro


def parse_schema(text: str) -> Any:
    """Returns the schema with named types expanded. Raises UsageError."""
    return _load(require_fastavro().schema.expand_schema, text)


def reading_schema(text: str) -> Any:
    """Returns the schema by which fastavro reads values. Raises UsageError."""
    fastavro = require_fastavro()
    return _load(lambda schema: fastavro.parse_schema(_without_logical_types(schema)), text)


def _load(parse: Callable[[Any], Any], text: str) -> Any:
    try:
        return parse(json.loads(text))
    except Exception as error:  # fastavro raises all kinds of errors for a document that is no schema
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"not the JSON of an Avro schema (option valueSchema): {reason}") from None


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {name: each for name, each in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in bare:
            bare[name] = _without_logical_types(bare[name])
    if "fields" in bare:
        # defaults stay: a reader's schema may have a field that the writer's has not
        bare["fields"] = [{**field, "type": _without_logical_types(field["type"])} for field in bare["fields"]]
    return bare


# --- Spark types ------------------------------------------------------------------------------------------------------


def value_type(schema: Any, path: str = "value") -> DataType:
    """Returns the Spark type of values of the schema. Raises UsageError if there is none."""
    schema = _non_null(schema, path)
    kind, logical = _kind(schema)
    if kind == "record":
        fields = [StructField(f["name"], value_type(f["type"], f"{path}.{f['name']}")) for f in schema["fields"]]
        if not fields:
            raise UsageError(f"{path}: a record without fields has no type in Spark")
        return StructType(fields)
    if kind == "array":
        if _takes_no_bytes(schema["items"]):
            raise UsageError(f"{path}: an array whose items take no bytes could claim any length")
        return ArrayType(value_type(schema["items"], f"{path}[]"))
    if kind == "map":
        return MapType(StringType(), value_type(schema["values"], f"{path}[]"))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= _DECIMAL_MAX:
            raise UsageError(f"{path}: decimal({precision},{scale}) is beyond Spark's {_DECIMAL_MAX} digits")
        return DecimalType(precision, scale)
    spark_type = _LOGICAL.get((kind, logical)) or _PRIMITIVE.get(kind)
    if spark_type is None:
        raise UsageError(f"{path}: the type {kind!r} is not defined, or contains itself; Spark has no types that do")
    return spark_type


def _kind(schema: Any) -> tuple[str, str]:
    """Returns the type and the logical type of a schema; the latter is empty if there is none."""
    if isinstance(schema, str):
        return schema, ""
    kind = schema["type"]
    if isinstance(kind, dict | list):  # a type in a type, as some generators write it
        return _kind(kind)
    return str(kind), str(schema.get("logicalType", ""))


def _non_null(schema: Any, path: str) -> Any:
    """Returns the only type of a union apart from null, or the wider of two numbers. Raises UsageError for other
    unions."""
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        schema = schema["type"]
        return _non_null(schema, path)
    if not isinstance(schema, list):
        return schema
    others = [each for each in schema if each != "null"]
    if len(others) == 1:
        return _non_null(others[0], path)
    kinds = [_kind(each)[0] for each in others]
    for wide in _WIDER:
        if others and set(kinds) <= wide:
            return max(wide, key=("int", "long", "float", "double").index)
    if not others:
        return "null"
    raise UsageError(
        f"{path}: a union of {' and '.join(kinds)} has no one type in Spark; with confluent-avro give a reader's schema"
        " that has one (option valueSchema)"
    )


def _takes_no_bytes(schema: Any) -> bool:
    if isinstance(schema, list):
        return False  # the number of the branch takes a byte
    kind, _ = _kind(schema)
    if kind == "record":
        return all(_takes_no_bytes(field["type"]) for field in schema["fields"])
    return kind == "null" or (kind == "fixed" and schema.get("size") == 0)


# --- shapes -----------------------------------------------------------------------------------------------------------


def avro_shape(schema: Any, target: Any) -> Shape:
    """Returns the shape of the schema's values. `target` is the Arrow type of their Spark type."""
    schema = _non_null(schema, "value")
    kind, logical = _kind(schema)
    if kind == "record":
        fields = schema["fields"]
        return struct_shape(target, [avro_shape(f["type"], target.field(i).type) for i, f in enumerate(fields)])
    if kind == "array":
        return list_shape(target, avro_shape(schema["items"], target.value_type))
    if kind == "map":
        return map_shape(target, leaf(pa.string()), avro_shape(schema["values"], target.item_type))
    if pa.types.is_decimal(target):
        return leaf(target, pa.binary(), lambda array: _decimals(array, target))
    if pa.types.is_date(target):
        return leaf(target, pa.int32(), lambda array: array.cast(target))
    if pa.types.is_timestamp(target):
        unit = pa.timestamp("ms" if logical.endswith("millis") else "us", tz=target.tz)
        return leaf(target, pa.int64(), lambda array: array.cast(unit).cast(target))
    return leaf(target)


def _decimals(array: Any, target: Any) -> Any:
    """Converts big-endian numbers of any length to decimals."""
    numbers = [None if each is None else int.from_bytes(each, "big", signed=True) for each in array.to_pylist()]
    return pa.array([None if each is None else Decimal(each).scaleb(-target.scale) for each in numbers], target)
