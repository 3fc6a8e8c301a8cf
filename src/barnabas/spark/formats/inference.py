"""The schema of JSON values, found out from some of them by Spark's rules.

Whole numbers are bigint, others double, both together double; what has several types is a string, as is what was null
only. Fields are in the order of their names, so that the same values in another order give the same schema.
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
from barnabas.spark.formats.json_reading import Number, document_of

__all__ = ["ddl_of", "inferred"]

_LONG: Final = 1 << 63
_DEPTH_MAX: Final = 50


def inferred(values: Iterable[bytes | None], what: str) -> StructType:
    """`what`: where they come from, for messages. Raises UsageError if none of them is a JSON object with fields."""
    found: Any = None
    seen = 0
    reason = ""
    for value in values:
        if value is None:
            continue
        seen += 1
        try:
            document = document_of(value)
        except ValueError as error:
            document, reason = None, reason or str(error)
        if isinstance(document, dict):
            found = _merged(found, _kind_of(document))
        else:
            reason = reason or "not an object"
    kind = _spark_type(found) if found is not None else None
    if isinstance(kind, StructType):
        return kind
    if not seen:
        raise UsageError(f"{what} has no records to find the schema in; give option valueSchema='id bigint, ...'")
    raise UsageError(
        f"none of the newest {seen} values of {what} is a JSON object with fields ({reason or 'they are empty'}); give"
        " option valueSchema, or another valueFormat"
    )


# A kind is None (null), the name of a scalar, ["array", kind], or a dict of kinds.


def _kind_of(found: Any, depth: int = 0) -> Any:
    if isinstance(found, bool):
        return "boolean"
    if isinstance(found, Number):
        return _number_kind(found)
    if isinstance(found, str) or (depth > _DEPTH_MAX and found is not None):
        return "string"
    if isinstance(found, dict):
        return {name: _kind_of(each, depth + 1) for name, each in found.items()}
    if isinstance(found, list):
        kind = None
        for each in found:
            kind = _merged(kind, _kind_of(each, depth + 1))
        return ["array", kind]
    return None


def _number_kind(text: str) -> str:
    digits = text.lstrip("-")
    if not digits.isdigit():
        return "double"
    return "bigint" if len(digits) <= 19 and -_LONG <= int(text) < _LONG else "string"


def _merged(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merged(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return ["array", _merged(one[1], other[1])]
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
    """None for objects that never had a field: there is no such type to read."""
    if kind is None:
        return StringType()
    if isinstance(kind, str):
        return _SCALARS[kind]
    if isinstance(kind, list):
        element = _spark_type(kind[1])
        return None if element is None else ArrayType(element)
    fields = [(name, _spark_type(each)) for name, each in sorted(kind.items())]
    there = [StructField(name, each) for name, each in fields if each is not None]
    return StructType(there) if there else None


def ddl_of(kind: DataType) -> str:
    """A type as Spark's parser reads it, with backquotes where a name needs them."""
    if isinstance(kind, StructType):
        return "struct<" + ", ".join(f"{_quoted(field.name)}: {ddl_of(field.dataType)}" for field in kind) + ">"
    if isinstance(kind, ArrayType):
        return f"array<{ddl_of(kind.elementType)}>"
    return str(kind.simpleString())


def _quoted(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else "`" + name.replace("`", "``") + "`"
