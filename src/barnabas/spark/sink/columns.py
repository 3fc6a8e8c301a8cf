"""Checks the columns of a write, and splits its rows by topic for the producer."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import UsageError
from barnabas.spark.sink.generations import GENERATION, with_header

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SinkColumns"]

_log = logging.getLogger("barnabas.spark")

_TEXT: Final = (StringType(), BinaryType())
_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "headers": (_HEADERS,),
}
_SOURCE_ONLY: Final = ("offset", "timestampType")
"""Columns that a source has and a sink ignores."""


class SinkColumns:
    """The columns that a query writes. Spark pickles them for the tasks."""

    def __init__(self, schema: StructType, topic: str | None, generation: int | None = None) -> None:
        """Each record gets a header with the `generation`. Raises UsageError for columns that are missing or have a
        wrong type."""
        names = list(schema.names)
        for field in schema.fields:
            types = _TYPES.get(field.name)
            if types is not None and not any(_matches(field.dataType, each) for each in types):
                allowed = " or ".join(each.simpleString() for each in types)
                raise UsageError(
                    f"column {field.name} is {field.dataType.simpleString()}; it must be {allowed}: convert it in the"
                    " query, by cast or to_json"
                )
            if types is not None and names.count(field.name) > 1:
                raise UsageError(f"column {field.name} occurs twice; drop one of them")
        if "value" not in names:
            raise UsageError(
                f"there is no column value, string or binary, but {', '.join(names) or 'none at all'}: records"
                " need a value; make the column in the query, for example by to_json(struct(*))"
            )
        if topic is None and "topic" not in names:
            raise UsageError("the rows have no topic. Give option topic, or a column topic")
        unknown = [name for name in names if name not in _TYPES and name not in _SOURCE_ONLY]
        if unknown:
            _log.warning("not written: %s (columns that records do not have)", ", ".join(unknown))
        self.topic = topic
        self._generation = generation
        self._names = [name for name in names if name in _TYPES and name != "topic"]

    def by_topic(self, batch: "pyarrow.RecordBatch") -> "Iterator[tuple[str, pyarrow.RecordBatch]]":
        """Yields each topic with its rows of the batch, in their order. Raises UsageError for a row without a topic."""
        rows = batch.select(self._names)
        if self._generation is not None:
            rows = with_header(rows, GENERATION, b"%d" % self._generation)
        if self.topic is not None:
            yield self.topic, rows
            return
        import pyarrow.compute as pc

        topics = batch.column("topic")
        if topics.null_count:
            raise UsageError("column topic is null in some rows, and there is no option topic: give these rows a topic")
        names = pc.unique(topics).to_pylist()
        for topic in names:
            yield topic, rows if len(names) == 1 else rows.filter(pc.equal(topics, topic))


def _matches(given: DataType, expected: DataType) -> bool:
    """Returns whether the types are equal, apart from nullability and the collation of strings."""
    if isinstance(expected, ArrayType):
        return isinstance(given, ArrayType) and _matches(given.elementType, expected.elementType)
    if isinstance(expected, StructType):
        return (
            isinstance(given, StructType)
            and given.names == expected.names
            and all(_matches(mine.dataType, other.dataType) for mine, other in zip(given, expected, strict=True))
        )
    return isinstance(given, type(expected))
