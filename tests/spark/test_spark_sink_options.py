"""A write's options and columns: what they mean, and what is said of those that are wrong. No session."""

from typing import Any

import pytest

from barnabas.errors import UsageError
from barnabas.spark.option_table import SINK_OPTIONS, check_names
from barnabas.spark.sink.options import SinkOptions

LEAST = {"bootstrap.servers": "localhost:9092", "topic": "orders"}


def parse(*, streaming: bool = False, **more: str) -> SinkOptions:
    return SinkOptions.parse(
        {**LEAST, **{name.replace("__", "."): text for name, text in more.items()}}, streaming=streaming
    )


def test_the_least() -> None:
    for streaming in (False, True):
        options = parse(streaming=streaming)
        assert options == ({"bootstrap.servers": "localhost:9092"}, "orders", True, None, 0, None, None)
    assert SinkOptions.parse({"kafka.bootstrap.servers": "a:1"}, streaming=True).topic is None
    assert parse(streaming=True, checkpointLocation="/data/q").checkpoint == "/data/q"


def test_every_option_of_the_table_is_known() -> None:
    for option in SINK_OPTIONS:
        check_names({option.name: "", option.name.lower(): ""})


def test_settings_of_the_producer_pass_and_those_of_consumers_do_not_matter() -> None:
    options = parse(kafka__linger__ms="7", kafka__compression__type="lz4", kafka__fetch__max__bytes="9")
    assert options.client == {
        "bootstrap.servers": "localhost:9092",
        "linger.ms": "7",
        "compression.type": "lz4",
    }


def test_who_writes_what() -> None:
    options = parse(txnAppId="nightly", txnVersion="12")
    assert (options.app_id, options.version) == ("nightly", 12)
    assert not parse(exactlyOnce="None").two_phase
    assert parse(exactlyOnce="none", kafka__acks="1").client["acks"] == "1"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"topic": " "}, "option topic is empty"),
        ({"tpoic": "x"}, "did you mean topic"),
        ({"exactlyOnce": "once"}, "exactlyOnce='once' must be one of two-phase, none"),
        ({"txnAppId": "a"}, "txnAppId is given without txnVersion"),
        ({"txnVersion": "1"}, "txnVersion is given without txnAppId"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, "txnAppId='a/b' must be a name of 1 to 100 characters without /"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion='-1' must be a whole number from 0 on"),
        ({"txnAppId": "a", "txnVersion": "1", "exactlyOnce": "none"}, "contradict"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id cannot be used: .* option txnAppId"),
        ({"kafka.acks": "1"}, "needs transactions, which kafka.acks rules out .* or set exactlyOnce=none"),
        ({"kafka.linger.ms": "soon"}, "begin with kafka.: .*linger.ms"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is missing"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SinkOptions.parse({**LEAST, **wrong}, streaming=False)


def test_a_stream_has_no_version() -> None:
    with pytest.raises(UsageError, match="a stream is known by its checkpoint"):
        parse(streaming=True, txnAppId="a", txnVersion="1")


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
