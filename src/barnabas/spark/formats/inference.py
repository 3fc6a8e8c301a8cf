"""Infers the schema of JSON values from a sample, by Spark's rules.

Whole numbers are bigint, other numbers double, a mixture of both double. Values of several types, and values that are
always null, are strings. Fields are sorted by name, so the order of the values does not change the schema.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from barnabas.errors import UsageError
from barnabas.spark.formats.json_readers import Number, parse_document

__all__ = ["ddl_of", "infer_schema"]

_LONG: Final = 1 << 63
_DEPTH_MAX: Final = 50


def infer_schema(values: Iterable[bytes | None], source: str) -> StructType:
    """Returns the schema of the values. Raises UsageError, which names their `source`, if none is a JSON object with
    fields."""
    merged: Any = None
    count = 0
    reason = ""
    for value in values:
        if value is None:
            continue
        count += 1
        try:
            document = parse_document(value)
        except ValueError as error:
            document, reason = None, reason or str(error)
        if isinstance(document, dict):
            merged = _merge(merged, _kind_of(document))
        else:
            reason = reason or "not an object"
    schema = _spark_type(merged) if merged is not None else None
    if isinstance(schema, StructType):
        return schema
    if not count:
        raise UsageError(f"{source} has no records to find the schema in; give option valueSchema='id bigint, ...'")
    raise UsageError(
        f"none of the newest {count} values of {source} is a JSON object with fields ({reason or 'they are empty'});"
        " give option valueSchema, or another valueFormat"
    )


# A kind is None (null), the name of a scalar, ["array", kind], or a dict of kinds.


def _kind_of(value: Any, depth: int = 0) -> Any:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Number):
        return _number_kind(value)
    if isinstance(value, str) or (depth > _DEPTH_MAX and value is not None):
        return "string"
    if isinstance(value, dict):
        return {name: _kind_of(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        kind = None
        for each in value:
            kind = _merge(kind, _kind_of(each, depth + 1))
        return ["array", kind]
    return None


def _number_kind(text: str) -> str:
    digits = text.lstrip("-")
    if not digits.isdigit():
        return "double"
    return "bigint" if len(digits) <= 19 and -_LONG <= int(text) < _LONG else "string"


def _merge(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merge(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return ["array", _merge(one[1], other[1])]
    if isinstance(one, str) and isinstance(other, str) and {one, other} == {"bigint", "double"}:
        return "double"
    return "string"


_SCALARS: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}


def _spark_type(kind: Any) -> DataType | None:
    """Returns the Spark type of a kind; None for objects without fields, which Spark has no type for."""
    if kind is None:
        return StringType()
    if isinstance(kind, str):
        return _SCALARS[kind]
    if isinstance(kind, list):
        element = _spark_type(kind[1])
        return None if element is None else ArrayType(element)
    types = [(name, _spark_type(each)) for name, each in sorted(kind.items())]
    fields = [StructField(name, each) for name, each in types if each is not None]
    return StructType(fields) if fields else None


def ddl_of(kind: DataType) -> str:
    """Returns a type as Spark's parser reads it, with backquotes if a name needs them."""
    if isinstance(kind, StructType):
        return "struct<" + ", ".join(f"{_quoted(field.name)}: {ddl_of(field.dataType)}" for field in kind) + ">"
    if isinstance(kind, ArrayType):
        return f"array<{ddl_of(kind.elementType)}>"
    return str(kind.simpleString())


def _quoted(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else "`" + name.replace("`", "``") + "`"
