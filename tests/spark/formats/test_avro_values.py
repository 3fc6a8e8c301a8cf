"""Avro values, bare and by a registry's ids: what was written comes back, and damaged bytes are only that. No Spark."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")

from barnabas.errors import UsageError  # noqa: E402
from barnabas.spark.formats.options import FormatOptions  # noqa: E402
from barnabas.spark.formats.registry import with_reader_schema  # noqa: E402
from client.schema_registry.fake_registry import NEW, OLD, OTHER, FakeRegistry, framed, written  # noqa: E402
from spark.formats.avro_values import ORDER, arrow_of, decoded, decoded_by  # noqa: E402

INTS = st.integers(-(2**31), 2**31 - 1)
LINES = st.fixed_dictionaries({"sku": st.text(max_size=5), "count": INTS})
MILLIS = st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 -- hypothesis wants it so
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(max_size=5),
        "share": st.floats(allow_nan=False),
        "open": st.booleans(),
        "raw": st.binary(max_size=5),
        "kind": st.sampled_from("AB"),
        "on": st.dates(),
        "at": st.none() | MILLIS,
        "local": st.datetimes(min_value=datetime(1900, 1, 1)),  # noqa: DTZ001
        "price": st.decimals(-(10**6), 10**6, places=2),
        "lines": st.lists(LINES, max_size=3),
        "first": st.none() | LINES,
        "counts": st.dictionaries(st.text(max_size=3), st.none() | INTS, max_size=3),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ORDERS, max_size=4))
def test_what_was_written_comes_back(orders: list[dict[str, Any]]) -> None:
    found, failures = decoded(ORDER, [written(ORDER, order) for order in orders])
    assert not failures
    for row in found:
        row["counts"] = dict(row["counts"])
    assert found == orders


SAMPLE = written(
    ORDER,
    {
        "id": 7, "name": "Ada", "share": 0.5, "open": True, "raw": b"r", "kind": "B", "on": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, tzinfo=UTC), "local": datetime(2026, 1, 31), "price": Decimal("1.25"),  # noqa: DTZ001
        "lines": [{"sku": "x", "count": 1}] * 3, "first": None, "counts": {"a": 1},
    },
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(SAMPLE) - 1), st.binary(max_size=4), st.booleans())
def test_damaged_bytes_are_corrupt_or_something_else(place: int, other: bytes, cut: bool) -> None:
    value = SAMPLE[:place] + other + (b"" if cut else SAMPLE[place + len(other) :])
    format_options = FormatOptions.parse({"valueFormat": "avro", "valueSchema": json.dumps(ORDER)})
    found, failures = arrow_of(
        format_options, [SAMPLE, value, SAMPLE]
    )  # a date may be one that Python has no object for
    assert failures.keys() <= {1}
    assert found.slice(0, 1).equals(found.slice(2, 1))
    assert found[1].is_valid == (not failures)


def test_times_that_do_not_fit() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    found, failures = decoded(schema, [written("long", 2**62), written("long", 1000)])
    assert found == [None, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)]
    assert "does not fit its type" in failures[0]


# --- a registry -------------------------------------------------------------------------------------------------------


def options_for(fake: FakeRegistry, **more: str) -> FormatOptions:
    options = {"valueFormat": "confluent-avro", "schema.registry.url": fake.url, "subscribe": "orders", **more}
    return with_reader_schema(FormatOptions.parse(options), options)


def test_values_of_several_schemas(registry: FakeRegistry) -> None:
    values = [
        framed(1, OLD, {"a": 1}),
        framed(2, NEW, {"a": 2, "b": "x"}),
        framed(3, OTHER, {"a": "text"}),
        framed(4, OLD, {"a": 1}),
        framed(9, OLD, {"a": 1}),
        b"\1" + bytes(5),
        b"",
        framed(1, OLD, {"a": 3}) + b"!",
    ]
    format_options = options_for(registry)
    assert format_options.value_type is not None
    assert format_options.value_type.simpleString() == "struct<a:int,b:string>"
    found, failures = decoded_by(format_options, values)
    assert found == [{"a": 1, "b": "-"}, {"a": 2, "b": "x"}, *[None] * 6]
    assert failures.keys() == set(range(2, 8))
    assert "SchemaResolutionError" in failures[2]
    assert failures[3] == "schema 4 is JSON, not Avro"
    assert f"the registry at {registry.url} has no schema 9" in failures[4]
    assert failures[6].endswith("but with nothing")
    before = len(registry.asked)
    assert decoded_by(format_options, values[:3])[0] == found[:3]
    assert len(registry.asked) == before  # known by now


def test_a_readers_schema_of_ones_own(registry: FakeRegistry) -> None:
    format_options = options_for(registry, valueSchema=json.dumps(OLD), subscribe="a,b")
    assert decoded_by(format_options, [framed(2, NEW, {"a": 2, "b": "x"})]) == ([{"a": 2}], {})
    with pytest.raises(UsageError, match="for several give it by option valueSchema"):
        options_for(registry, subscribe="a,b")
    with pytest.raises(UsageError, match="has no subject 'paid-value'; give the reader's schema by"):
        options_for(registry, subscribe="paid")
