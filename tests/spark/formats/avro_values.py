"""Avro schemas, and values that are decoded with them."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from pyspark.sql.pandas.types import to_arrow_type  # noqa: E402

from barnabas.spark.formats.options import FormatOptions  # noqa: E402
from barnabas.spark.formats.values import make_decoder  # noqa: E402

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
LOOP = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "share", "type": "double"},
        {"name": "open", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
    ],
}


def decoded(schema: Any, values: list[bytes], **more: Any) -> tuple[list[Any], dict[int, str]]:
    format_options = FormatOptions.parse({"valueFormat": "avro", "valueSchema": json.dumps(schema), **more})
    return decoded_by(format_options, values)


def decoded_by(format_options: FormatOptions, values: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    found, failures = arrow_of(format_options, values)
    return found.to_pylist(), failures


def arrow_of(format_options: FormatOptions, values: list[bytes]) -> tuple[Any, dict[int, str]]:
    assert format_options.value_type is not None
    kind = to_arrow_type(format_options.value_type, timezone="UTC")
    failures: dict[int, str] = {}
    found = make_decoder(format_options, kind).decode(pa.array(values, pa.binary()), failures)
    assert found.type == kind
    found.validate(full=True)
    return found, failures
