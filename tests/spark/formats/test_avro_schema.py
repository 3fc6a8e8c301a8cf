"""The types that Spark has for Avro's schemas, and schemas that it has none for."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")

from barnabas.errors import UsageError
from barnabas.spark.formats.avro_schema import parse_schema, value_type
from client.schema_registry.fake_registry import written
from spark.formats.avro_values import LOOP, ORDER, decoded


def test_types() -> None:
    assert value_type(parse_schema(json.dumps(ORDER))).simpleString() == (
        "struct<id:bigint,name:string,share:double,open:boolean,raw:binary,kind:string,on:date,at:timestamp,"
        "local:timestamp_ntz,price:decimal(9,2),lines:array<struct<sku:string,count:int>>,"
        "first:struct<sku:string,count:int>,counts:map<string,int>>"
    )
    assert value_type(parse_schema('["null", "int", "long"]')).simpleString() == "bigint"
    assert decoded('"string"'.strip('"'), [written("string", "x"), b"\x02"])[0] == ["x", None]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "array", "items": "null"}, "value: an array whose items take no bytes"),
        ({"type": "record", "name": "R", "fields": []}, "a record without fields"),
        (["int", "string"], "a union of int and string has no one type"),
        (LOOP, r"value\.r: .* contains itself"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60}, r"decimal\(60,0\) is beyond"),
        ({"type": "rekord"}, "not the JSON of an Avro schema"),
    ],
)  # fmt: skip
def test_schemas_that_have_no_type(schema: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        decoded(schema, [])
