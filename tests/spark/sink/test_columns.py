"""A write's columns: which are allowed, and where their rows go. No session."""

from typing import Any

import pytest

from barnabas.errors import UsageError


def columns(ddl: str, topic: str | None = "t") -> Any:
    types = pytest.importorskip("pyspark.sql.types")
    from barnabas.spark.sink.columns import SinkColumns

    kinds = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(
            types.StructType(
                [types.StructField("key", types.StringType(), False), types.StructField("value", types.BinaryType())]
            ),
            False,
        ),
    }
    fields = [part.split() for part in ddl.split(",")]
    return SinkColumns(types.StructType([types.StructField(name, kinds[kind]) for name, kind in fields]), topic)


def test_columns_that_there_may_be(caplog: pytest.LogCaptureFixture) -> None:
    for value in ("binary", "string"):
        columns(f"value {value},key string,topic string,partition int,timestamp timestamp,headers headers,offset long")
    assert not caplog.records
    columns("value binary,total long")
    assert "not written: total" in caplog.text


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("key binary", "no column value, string or binary, but key"),
        ("value long", "column value is bigint; it must be string or binary: convert it in the query"),
        ("value binary,key int", "column key is int; it must be string or binary"),
        ("value binary,partition long", "column partition is bigint; it must be int"),
        ("value binary,headers string", "column headers is string; it must be array<struct<key:string,value:binary>>"),
        ("value binary,timestamp long", "column timestamp is bigint; it must be timestamp"),
        ("value binary,value string", "column value occurs twice"),
    ],
)
def test_columns_that_there_may_not_be(ddl: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        columns(ddl)


def test_rows_need_a_topic() -> None:
    with pytest.raises(UsageError, match="Give option topic, or a column topic"):
        columns("value binary", None)


def test_rows_go_to_their_topics_in_their_order() -> None:
    pa = pytest.importorskip("pyarrow")
    made = columns("value string,topic string,offset long", None)
    batch = pa.RecordBatch.from_pydict(
        {"value": ["1", "2", "3", "4"], "topic": ["b", "a", "b", "a"], "offset": [1] * 4}
    )
    found = [(topic, rows.to_pydict()) for topic, rows in made.by_topic(batch)]
    assert found == [("b", {"value": ["1", "3"]}), ("a", {"value": ["2", "4"]})]
    with pytest.raises(UsageError, match="column topic is null"):
        list(
            made.by_topic(
                pa.RecordBatch.from_pydict({"value": ["1"], "topic": pa.array([None], pa.string()), "offset": [1]})
            )
        )
