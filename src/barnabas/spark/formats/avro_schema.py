"""Avro schemas: what they make in Spark, and the shape of fastavro's values, by the rules of Spark's from_avro.

fastavro gives times as Python's objects, which is slow and knows fewer years than Spark. So it is shown the schemas
without their logical types, and Arrow makes times of the numbers.
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
"""Unions that have one type nevertheless: the second."""
_DECIMAL_MAX: Final = 38


def require_fastavro(value_format: str = "avro") -> Any:
    """The module; UsageError says where it comes from."""
    try:
        import fastavro
        import fastavro.schema
    except ImportError:
        raise UsageError(f"valueFormat={value_format} needs fastavro: pip install 'barnabas[spark-formats]'") from None
    return fastavro


def parse_schema(text: str) -> Any:
    """The schema, with names replaced by what they stand for. Raises UsageError."""
    return _understood(require_fastavro().schema.expand_schema, text)


def reading_schema(text: str) -> Any:
    """The schema as fastavro is to read values by. Raises UsageError."""
    fastavro = require_fastavro()
    return _understood(lambda schema: fastavro.parse_schema(_bare(schema)), text)


def _understood(make: Callable[[Any], Any], text: str) -> Any:
    try:
        return make(json.loads(text))
    except Exception as error:  # fastavro raises whatever the document makes it stumble over
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"not the JSON of an Avro schema (option valueSchema): {what}") from None


def _bare(schema: Any) -> Any:
    """Without logical types."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: each for name, each in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _bare(found[name])
    if "fields" in found:
        found["fields"] = [_bare_field(field) for field in found["fields"]]
    return found


def _bare_field(field: dict[str, Any]) -> dict[str, Any]:
    """Its default stays: a reader's schema may have a field that the writer's has not."""
    return {**field, "type": _bare(field["type"])}


# --- what Spark sees --------------------------------------------------------------------------------------------------


def value_type(schema: Any, path: str = "value") -> DataType:
    """Raises UsageError for what has no type in Spark."""
    schema = _branch(schema, path)
    kind, logical = _kind(schema)
    if kind == "record":
        fields = [StructField(f["name"], value_type(f["type"], f"{path}.{f['name']}")) for f in schema["fields"]]
        if not fields:
            raise UsageError(f"{path}: a record without fields has no type in Spark")
        return StructType(fields)
    if kind == "array":
        if _takes_no_bytes(schema["items"]):
            raise UsageError(f"{path}: an array of what takes no bytes could claim any length")
        return ArrayType(value_type(schema["items"], f"{path}[]"))
    if kind == "map":
        return MapType(StringType(), value_type(schema["values"], f"{path}[]"))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= _DECIMAL_MAX:
            raise UsageError(f"{path}: decimal({precision},{scale}) is beyond Spark's {_DECIMAL_MAX} digits")
        return DecimalType(precision, scale)
    found = _LOGICAL.get((kind, logical)) or _PRIMITIVE.get(kind)
    if found is None:
        raise UsageError(f"{path}: the type {kind!r} is not defined, or contains itself; Spark has no types that do")
    return found


def _kind(schema: Any) -> tuple[str, str]:
    """(type, logical type or nothing)."""
    if isinstance(schema, str):
        return schema, ""
    kind = schema["type"]
    if isinstance(kind, dict | list):  # a type in a type, as some generators write it
        return _kind(kind)
    return str(kind), str(schema.get("logicalType", ""))


def _branch(schema: Any, path: str) -> Any:
    """The one type of a union, apart from null."""
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        schema = schema["type"]
        return _branch(schema, path)
    if not isinstance(schema, list):
        return schema
    others = [each for each in schema if each != "null"]
    if len(others) == 1:
        return _branch(others[0], path)
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
        return False  # its number takes one
    kind, _ = _kind(schema)
    if kind == "record":
        return all(_takes_no_bytes(field["type"]) for field in schema["fields"])
    return kind == "null" or (kind == "fixed" and schema.get("size") == 0)


# --- what Arrow gets --------------------------------------------------------------------------------------------------


def avro_shape(schema: Any, target: Any) -> Shape:
    """For values of this schema, whose type in Spark is `target` in Arrow."""
    schema = _branch(schema, "value")
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
    """Of big-endian numbers of as many bytes as they need."""
    numbers = [None if each is None else int.from_bytes(each, "big", signed=True) for each in array.to_pylist()]
    return pa.array([None if each is None else Decimal(each).scaleb(-target.scale) for each in numbers], target)
