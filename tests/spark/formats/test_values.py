"""Values with types, read by a real Spark session from a real broker."""

import json
from io import BytesIO
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

pytest.importorskip("pyspark")

ORDERS = "id bigint, customer string, at timestamp, lines array<struct<sku: string, count: int>>"

TIME = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.fixture
def read(spark: Any, broker: Broker, topic: str) -> Any:
    def load(**options: Any) -> Any:
        reader = spark.read.format("barnabas").option("bootstrap.servers", broker.bootstrap_servers)
        for name, value in {"subscribe": topic, **options}.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader

    return load


def write(broker: Broker, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key=key)


def refused(frame: Any) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        frame.load().collect()
    return str(caught.value)


@pytest.mark.smoke
def test_json_with_a_schema(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    good = {"id": 7, "customer": "Ada", "at": "2026-01-31T05:15:00.5+01:00", "lines": [{"sku": "x", "count": 2}]}
    write(broker, topic, json.dumps(good).encode(), b'{"id": "seven"}', None, b"[]", b'{"id":8,\n"more":1}', key=b"k")
    found = read(valueFormat="json", valueSchema=ORDERS, keyFormat="string").load()
    assert found.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,customer:string,at:timestamp,lines:array<struct<sku:string,count:int>>>"
    )
    assert (found.columns[-1], found.schema["_corrupt"].dataType.simpleString()) == ("_corrupt", "binary")
    rows = found.orderBy("offset").collect()
    first = rows[0]
    assert (first.key, first.topic, first.offset) == ("k", topic, 0)
    assert (first.value.id, first.value.customer) == (7, "Ada")
    assert [tuple(line) for line in first.value.lines] == [("x", 2)]
    assert found.selectExpr("unix_micros(value.at) as at").collect()[0].at == 1769832900_500_000
    assert [row.value is None for row in rows] == [False, True, True, True, False]
    assert [row._corrupt for row in rows] == [None, b'{"id": "seven"}', None, b"[]", None]
    assert rows[4].value.id == 8


def test_a_query_that_is_to_fail_names_the_record(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    write(broker, topic, b'{"id": 1}', b'{"id": true}')
    said = refused(read(valueFormat="json", valueSchema=ORDERS, mode="FAILFAST"))
    assert f"{topic}-0, offset 1: the value is no json of the schema: id: true or false where a whole number" in said
    assert "mode=PERMISSIVE" in said


def test_json_without_a_schema(read: Any, spark: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 2)
    write(
        broker, topic, *(b'{"n": %d, "share": %d.5, "tags": ["a"]}' % (n, n) for n in range(50)), b"{}", b'{"n":null}'
    )
    found = read(valueFormat="json").load()
    assert found.schema["value"].dataType.simpleString() == "struct<n:bigint,share:double,tags:array<string>>"
    assert found.selectExpr("sum(value.n) as total").collect()[0].total == sum(range(50))
    stream = spark.readStream.format("barnabas").option("bootstrap.servers", broker.bootstrap_servers)
    stream = stream.option("subscribe", topic).option("valueFormat", "json")
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="valueSchema='struct<n: bigint, share: double, tags: array<string>>'"):
        stream.load().writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def test_a_stream_of_json(spark: Any, broker: Broker, topic: str, tmp_path: Any) -> None:
    broker.create_topic(topic)
    write(broker, topic, *(b'{"n": %d}' % n for n in range(100)), b"?")
    stream = spark.readStream.format("barnabas").option("bootstrap.servers", broker.bootstrap_servers)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").option("valueFormat", "json")
    rows = stream.option("valueSchema", "struct<n: int>").load().selectExpr("value.n", "_corrupt")
    query = rows.writeStream.format("memory").queryName("numbers").trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.table("numbers").collect()
    assert sorted(row.n for row in found if row._corrupt is None) == list(range(100))
    assert [row._corrupt for row in found if row.n is None] == [b"?"]


def test_the_columns_that_a_query_names(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    write(broker, topic, b'{"a": 1, "b": 2}', b"-")
    rows = read(valueFormat="json").schema("value struct<b: int>, offset bigint").load().orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"value": {"b": 2}, "offset": 0},
        {"value": None, "offset": 1},
    ]
    assert "column value is a struct with valueFormat=json" in refused(read(valueFormat="json").schema("value string"))
    strict = read(valueFormat="json").schema("value struct<b: int not null>")
    assert "value.b is `not null` in the schema" in refused(strict)
    assert "_corrupt" in refused(read().schema("_corrupt binary"))


def test_texts(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    write(broker, topic, "Käfer".encode(), b"\xff", None, key=b"\xfe")
    rows = read(valueFormat="string", keyFormat="string").load().orderBy("offset").collect()
    assert [(row.key, row.value, row._corrupt) for row in rows] == [
        ("\ufffd", "Käfer", None),
        ("\ufffd", None, b"\xff"),
        ("\ufffd", None, None),
    ]


def test_avro(read: Any, broker: Broker, topic: str) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "at", "type": TIME}]}
    broker.create_topic(topic)
    values = []
    for number in range(3):
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"n": number, "at": 1000 * number})
        values.append(out.getvalue())
    write(broker, topic, *values, b"\xff")
    rows = read(valueFormat="avro", valueSchema=json.dumps(schema)).load().orderBy("offset")
    found = rows.selectExpr("value.n", "unix_millis(value.at) as at", "_corrupt").collect()
    assert [(row.n, row.at) for row in found] == [(0, 0), (1, 1000), (2, 2000), (None, None)]
    assert found[3]._corrupt == b"\xff"


def test_protobuf(read: Any, broker: Broker, topic: str, tmp_path: Any) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", syntax="proto3")
    file.message_type.add(name="N").field.add(name="n", number=1, type=3, label=1)
    path = tmp_path / "n.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    broker.create_topic(topic)
    write(broker, topic, b"\x08\x07", b"", b"\x08")
    rows = read(valueFormat="protobuf", valueSchema=path, messageName="N").load().orderBy("offset").collect()
    assert [(row.value and row.value.n, row._corrupt) for row in rows] == [(7, None), (0, None), (None, b"\x08")]


def test_what_is_wrong_is_named(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    assert "has no records to find the schema in" in refused(read(valueFormat="json"))
    write(broker, topic, b"1", b"x")
    assert "none of the newest 2 values of topic" in refused(read(valueFormat="json"))
    assert "valueFormat='jsn' must be one of binary, string, json" in refused(read(valueFormat="jsn"))
    said = refused(read(valueFormat="json", valueSchema="a int", mode="DROPMALFORMED"))
    assert "must be PERMISSIVE or FAILFAST" in said
    assert "_corrupt IS NULL" in said
    assert "option valueSchema is for valueFormat=json|avro" in refused(read(valueSchema="a int"))
    assert "'Mars' is no time zone" in refused(read(valueFormat="json", valueSchema="a int", timeZone="Mars"))
    said = refused(read(valueFormat="json", valueSchema="a interval day to second"))
    assert "value.a: JSON has no values for the type" in said
