"""The columns of a write: which there may be, and rows as the producer wants them, topic by topic."""

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
_KINDS: Final[dict[str, tuple[DataType, ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "headers": (_HEADERS,),
}
_OF_SOURCES: Final = ("offset", "timestampType")
"""What a source tells and no writer decides."""


class SinkColumns:
    """The columns that a query writes. Pickled for the tasks."""

    def __init__(self, schema: StructType, topic: str | None, generation: int | None = None) -> None:
        """`generation`: what each record gets in a header. Raises UsageError for columns that are missing or of another
        type."""
        names = list(schema.names)
        for field in schema.fields:
            kinds = _KINDS.get(field.name)
            if kinds is not None and not any(_same(field.dataType, kind) for kind in kinds):
                allowed = " or ".join(kind.simpleString() for kind in kinds)
                raise UsageError(
                    f"column {field.name} is {field.dataType.simpleString()}; it must be {allowed}: convert it in the"
                    " query, by cast or to_json"
                )
            if kinds is not None and names.count(field.name) > 1:
                raise UsageError(f"column {field.name} is there twice; drop one of them")
        if "value" not in names:
            raise UsageError(
                f"there is no column value, string or binary, but {', '.join(names) or 'none at all'}: it is what the"
                " records hold; make one in the query, with to_json(struct(*)) for example"
            )
        if topic is None and "topic" not in names:
            raise UsageError("where do the rows go? Give option topic, or a column topic")
        unknown = [name for name in names if name not in _KINDS and name not in _OF_SOURCES]
        if unknown:
            _log.warning("not written: %s (columns that records do not have)", ", ".join(unknown))
        self.topic = topic
        self._generation = generation
        self._names = [name for name in names if name in _KINDS and name != "topic"]

    def by_topic(self, batch: "pyarrow.RecordBatch") -> "Iterator[tuple[str, pyarrow.RecordBatch]]":
        """The batch's rows under their topics, in their order. Raises UsageError for a row without a topic."""
        rows = batch.select(self._names)
        if self._generation is not None:
            rows = with_header(rows, GENERATION, b"%d" % self._generation)
        if self.topic is not None:
            yield self.topic, rows
            return
        import pyarrow.compute as pc

        topics = batch.column("topic")
        if topics.null_count:
            raise UsageError("column topic is null in some rows and there is no option topic: where do they go?")
        there = pc.unique(topics).to_pylist()
        for topic in there:
            yield topic, rows if len(there) == 1 else rows.filter(pc.equal(topics, topic))


def _same(kind: DataType, wanted: DataType) -> bool:
    """Whatever may be null, and however texts are compared."""
    if isinstance(wanted, ArrayType):
        return isinstance(kind, ArrayType) and _same(kind.elementType, wanted.elementType)
    if isinstance(wanted, StructType):
        return (
            isinstance(kind, StructType)
            and kind.names == wanted.names
            and all(_same(mine.dataType, other.dataType) for mine, other in zip(kind, wanted, strict=True))
        )
    return isinstance(kind, type(wanted))
