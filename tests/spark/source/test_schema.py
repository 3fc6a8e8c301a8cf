"""The columns that a query gets of a topic. No session."""

import pickle
from typing import Any

import pytest

from barnabas.errors import UsageError

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from barnabas.client.fetch.columns import record_schema as client_schema  # noqa: E402
from barnabas.spark.formats.options import FormatOptions  # noqa: E402
from barnabas.spark.source.schema import Columns, record_schema  # noqa: E402

STRINGS = FormatOptions.parse({"valueFormat": "string", "keyFormat": "string"})


def schema_of(**fields: Any) -> Any:
    return types.StructType([types.StructField(name, kind) for name, kind in fields.items()])


def batch_of(*rows: dict[str, Any]) -> Any:
    some = {"topic": "t", "partition": 1, "offset": 0, "timestamp": 0, "timestamp_type": 0, "key": b"k", "value": b"v"}
    return pa.RecordBatch.from_pylist([{**some, "headers": [], **row} for row in rows], client_schema(headers=True))


def test_the_columns_of_a_topic() -> None:
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert record_schema(headers=False).names == names
    assert record_schema(headers=True).names == [*names, "headers"]
    parsed = record_schema(headers=False, format_options=STRINGS)
    assert parsed.names == [*names, "_corrupt"]
    assert [parsed[name].dataType.simpleString() for name in ("key", "value")] == ["string", "string"]
    with_ddl = FormatOptions.parse({"valueFormat": "json", "valueSchema": "id bigint"})
    assert record_schema(headers=False, format_options=with_ddl).startswith("`key` binary, `value` struct<id bigint>, ")


def test_batches_get_the_querys_columns_in_its_order() -> None:
    kinds = {"offset": types.LongType(), "timestampType": types.IntegerType(), "timestamp": types.TimestampType()}
    columns = pickle.loads(pickle.dumps(Columns(schema_of(**kinds))))  # noqa: S301 -- as Spark hands it to tasks
    late = 2**63 // 1000 + 5  # such as a producer's nanoseconds
    found = columns.convert(batch_of({"offset": 5, "timestamp": 1500, "timestamp_type": 1}, {"timestamp": late}))
    assert found.schema.names == list(kinds)
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1_500_000, None]
    assert [found.column(name).to_pylist() for name in ("offset", "timestampType")] == [[5, 0], [1, 0]]


def test_headers_and_keys_take_sparks_types() -> None:
    full = record_schema(headers=True, format_options=STRINGS)
    columns = Columns(full, STRINGS)
    assert columns.with_headers
    found = columns.convert(batch_of({"headers": [("h", b"x")], "key": b"\xff", "value": b"\xfe"}, {}))
    assert found.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}], []]
    assert found.column("key").to_pylist() == ["\ufffd", "k"]
    assert found.column("value").to_pylist() == [None, "v"]
    assert found.column("_corrupt").to_pylist() == [b"\xfe", None]


@pytest.mark.parametrize(
    ("fields", "format_options", "told"),
    [
        ({"ofset": types.LongType()}, FormatOptions(), "a topic has no column 'ofset': did you mean offset"),
        ({"offset": types.IntegerType()}, FormatOptions(), "column offset is bigint, not int; convert it in the query"),
        ({"value": types.StringType()}, FormatOptions(), "value is binary, not string; .* or read it so by option"),
        ({"_corrupt": types.BinaryType()}, FormatOptions(), "a topic has no column '_corrupt'"),
        ({"value": types.LongType()}, FormatOptions(value="json"), "value is a struct with valueFormat=json"),
        (
            {"value": types.StructType([types.StructField("id", types.LongType(), nullable=False)])},
            FormatOptions(value="json"),
            r"value\.id is `not null` in the schema",
        ),
    ],
)  # fmt: skip
def test_columns_that_topics_do_not_have(fields: dict[str, Any], format_options: FormatOptions, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Columns(schema_of(**fields), format_options)
