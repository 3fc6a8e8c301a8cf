"""Single JSON documents, read as from_json reads them. No Spark."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.formats.json_readers import (
    Number,
    list_reader,
    map_reader,
    parse_document,
    scalar_reader,
    struct_reader,
)

pa = pytest.importorskip("pyarrow")


def read(kind: Any, text: str, zone: str = "UTC") -> Any:
    reader = scalar_reader(kind, zone)
    assert reader is not None
    return reader(parse_document(text.encode()))


def written(document: Any) -> Any:
    """The document with its numbers as texts."""
    if isinstance(document, list):
        return [written(each) for each in document]
    if isinstance(document, dict):
        return {name: written(each) for name, each in document.items()}
    return Number(document)


@given(st.recursive(st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_numbers_stay_as_they_were_written(document: Any) -> None:
    assert parse_document(json.dumps(document).encode()) == written(document)
    assert parse_document(b"[1.50, NaN]") == ["1.50", "NaN"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "empty"),
        (b"\xff", "not UTF-8: .* at byte 0"),
        (b"{", "not JSON: "),
        (b"[" * 100_000, "not JSON: too deep"),
    ],
)
def test_what_is_no_document(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_document(data)


def test_structs_lists_and_maps() -> None:
    whole = scalar_reader(pa.int8(), "UTC")
    assert whole is not None
    reader = struct_reader({"a": whole, "b": list_reader(whole), "c": map_reader(whole)})
    document = parse_document(b'{"b": [1, null], "c": {"x": 2, "y": null}, "more": {}, "a": null}')
    assert reader(document) == {"b": [1, None], "c": [("x", 2), ("y", None)]}
    for text, told in (
        ('{"b": [300]}', "b: 300 does not fit 8 bits"),
        ('{"b": 5}', "b: 5 where an array is expected"),
        ('{"c": []}', "c: an array where an object is expected"),
        ('{"c": {"\\ud800": 1}}', "c: half a character"),
        ('"text"', "'text' where an object is expected"),
    ):
        with pytest.raises(ValueError, match=told):
            reader(parse_document(text.encode()))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.float64(), '"-INF"', float("-inf")),
        (pa.float64(), "1e3", 1000.0),
        (pa.bool_(), "true", True),
        (pa.string(), '{"a": [1.50, "x", null]}', '{"a":[1.50,"x",null]}'),
        (pa.binary(), '"AQI="', b"\1\2"),
        (pa.date32(), '"1970-01-11"', 10),
        (pa.decimal128(5, 2), "1.005", Decimal("1.01")),
        (pa.timestamp("us", tz="UTC"), "5", 5_000_000),
        (pa.timestamp("us"), '"1970-01-01T00:00:01"', 1_000_000),
    ],
)
def test_scalars(kind: Any, text: str, value: Any) -> None:
    assert read(kind, text) == value
    assert type(read(kind, text)) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (pa.int64(), "9223372036854775808", "does not fit 64 bits"),
        (pa.int64(), "1.0", "where a whole number is expected"),
        (pa.float64(), '"1.5"', "where a number is expected"),
        (pa.bool_(), "1", "where true or false is expected"),
        (pa.binary(), '"A"', "is not base64"),
        (pa.decimal128(3, 2), "10", r"does not fit decimal\(3,2\)"),
        (pa.decimal128(3, 2), "NaN", "where a number is expected"),
        (pa.date32(), "5", "where a date is expected"),
        (pa.timestamp("us", tz="UTC"), "9223372036854775807", "beyond what 64 bits"),
        (pa.string(), '"\\ud800"', "half a character"),
    ],
)
def test_values_that_do_not_fit(kind: Any, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read(kind, text)
