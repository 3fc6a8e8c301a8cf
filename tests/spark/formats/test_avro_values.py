"""Avro values, bare and by a registry's ids: what was written comes back, and damaged bytes are only that. No Spark."""

import base64
import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

from pyspark.sql.pandas.types import to_arrow_type  # noqa: E402

from barnabas.client.schema_registry.avro_references import BrokenReference, named_types, resolved  # noqa: E402
from barnabas.client.schema_registry.registry_client import RegistryUnavailable, SchemaRegistryClient, UnknownSchema  # noqa: E402
from barnabas.errors import UsageError  # noqa: E402
from barnabas.spark.formats.avro_schema import parse_schema, value_type  # noqa: E402
from barnabas.spark.formats.options import FormatOptions  # noqa: E402
from barnabas.spark.formats.registry import with_reader_schema  # noqa: E402
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


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


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


def test_times_that_do_not_fit() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    found, failures = decoded(schema, [written("long", 2**62), written("long", 1000)])
    assert found == [None, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)]
    assert "does not fit its type" in failures[0]


# --- a registry -------------------------------------------------------------------------------------------------------

OLD = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "int"}]}
NEW = {"type": "record", "name": "P", "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "-"}]}
OTHER = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "string"}]}


COLOR = {"type": "enum", "name": "shop.Color", "symbols": ["RED", "BLUE"]}
ITEM = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [{"name": "color", "type": "Color"}, {"name": "also", "type": {"type": "array", "items": "Item"}}],
}
NESTED = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.orders",
    "fields": [
        {"name": "items", "type": {"type": "array", "items": "shop.Item"}},
        {"name": "color", "type": ["null", "shop.Color"]},
        {"name": "first", "type": "shop.Item"},
    ],
}


def refers(schema: Any, *places: tuple[str, int]) -> dict[str, Any]:
    references = [{"name": "any", "subject": subject, "version": version} for subject, version in places]
    return {"schema": json.dumps(schema), "references": references}


REFERRING = {
    "/schemas/ids/10": refers(NESTED, ("item", 3), ("color", 1)),
    "/schemas/ids/11": refers(NESTED, ("item", 4)),
    "/schemas/ids/12": refers(NESTED, ("broken", 1)),
    "/subjects/item/versions/3?deleted=true": refers(ITEM, ("color", 1), ("item", 3)),
    "/subjects/color/versions/1?deleted=true": {"schema": json.dumps(COLOR)},
    "/subjects/broken/versions/1?deleted=true": {"schema": '{"type": "record"}'},
}


class FakeRegistry:
    """Answers as Confluent's does; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.password: str | None = None
        self.elsewhere = ""
        """The address that all requests are redirected to, if there is one."""
        self.authorizations: list[str | None] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append(self.path)
                fake.authorizations.append(self.headers.get("Authorization"))
                if fake.elsewhere and not self.path.startswith("/moved"):
                    self.send_response(302)
                    self.send_header("Location", fake.elsewhere + self.path)
                    self.end_headers()
                    return
                status, body = fake.answer(self.path.removeprefix("/moved"), self.headers.get("Authorization"))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        if self.password and authorization != "Basic " + base64.b64encode(self.password.encode()).decode():
            return 401, {}
        schemas = {"/schemas/ids/1": OLD, "/schemas/ids/2": NEW, "/schemas/ids/3": OTHER}
        schemas["/subjects/orders-value/versions/latest"] = NEW
        if path in REFERRING:
            return 200, REFERRING[path]
        if path == "/schemas/ids/4":
            return 200, {"schema": "{}", "schemaType": "JSON"}
        if path == "/schemas/ids/5":
            return 500, {}
        return (200, {"schema": json.dumps(schemas[path])}) if path in schemas else (404, {"error_code": 40403})


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + written(schema, value)


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


def test_a_schema_that_refers_to_others(registry: FakeRegistry) -> None:
    found = SchemaRegistryClient({"url": registry.url}, 5)
    text = found.schema_of(10)
    item = {"color": "RED", "also": [{"color": "BLUE", "also": []}]}
    value = {"items": [item], "color": "BLUE", "first": item}
    data = written(json.loads(text), value)
    assert fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(json.loads(text)), None) == value
    asked = [path for path in registry.asked if "/subjects/" in path]
    assert asked == ["/subjects/item/versions/3?deleted=true", "/subjects/color/versions/1?deleted=true"]
    with pytest.raises(UnknownSchema, match="schema 11 refers to version 4 of subject 'item', which is not there"):
        found.schema_of(11)
    with pytest.raises(UnknownSchema, match=r"schema 12 of the registry: not an Avro schema \(KeyError"):
        found.schema_of(12)


def test_names_mean_the_same_wherever_a_type_is_put() -> None:
    """One without a namespace, and one with, that are both called T."""
    plain = {"type": "fixed", "name": "T", "size": 1}
    named = {"type": "record", "name": "T", "namespace": "n", "fields": [{"name": "t", "type": "long"}]}
    known = {**named_types(json.dumps(plain)), **named_types(json.dumps(named))}
    assert sorted(known) == ["T", "n.T"]
    main = {"type": "record", "name": "M", "fields": [{"name": "a", "type": "n.T"}, {"name": "b", "type": "T"}]}
    schema = json.loads(resolved(json.dumps(main), known))
    value = {"a": {"t": 5}, "b": b"x"}
    data = written(schema, value)
    assert fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(schema), None) == value


def test_a_type_without_a_namespace_named_within_one() -> None:
    size = {"type": "fixed", "name": "Size", "size": 1}
    base = {
        "type": "record",
        "name": "Base",
        "fields": [{"name": "x", "type": "Size"}, {"name": "y", "type": ["null", "Size"]}],
    }
    known = {**named_types(json.dumps(base)), **named_types(json.dumps(size))}
    main = {"type": "record", "name": "O", "namespace": "n", "fields": [{"name": "b", "type": "Base"}]}
    schema = json.loads(resolved(json.dumps(main), known))
    value = {"b": {"x": b"1", "y": b"2"}}
    data = written(schema, value)
    assert fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(schema), None) == value
    main["fields"] = [{"name": "b", "type": "Base"}, {"name": "c", "type": {"type": "array", "items": "Base"}}]
    with pytest.raises(BrokenReference, match="Base has no namespace and is named a second time, within one"):
        resolved(json.dumps(main), known)
    same = {**named_types(json.dumps({**size, "name": "n.Base"})), **known}  # the nearest one is meant
    fields = json.loads(resolved(json.dumps(main), same))["fields"]
    assert (fields[0]["type"]["name"], fields[1]["type"]["items"]) == ("n.Base", "n.Base")


def test_properties_of_ones_own_have_any_name() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["a"], "items": {"note": 1}, "values": ["b"]}
    text = json.dumps({"type": "record", "name": "R", "values": {}, "fields": [{"name": "e", "type": inner}]})
    assert sorted(named_types(text)) == ["E", "R"]
    main = {"type": "array", "items": {"type": "map", "values": "E"}}
    schema = fastavro.parse_schema(json.loads(resolved(json.dumps(main), named_types(text))))
    data = written(schema, [{"k": "a"}])
    assert fastavro.schemaless_reader(BytesIO(data), schema, None) == [{"k": "a"}]
    with pytest.raises(BrokenReference, match="not an Avro schema"):
        named_types(json.dumps({"type": "record", "name": "R", "fields": 5}))


def test_a_registry_that_is_no_help(registry: FakeRegistry) -> None:
    registry.password = "ada:secret"
    with pytest.raises(RegistryUnavailable, match=r"HTTP 401 .*user:password"):
        SchemaRegistryClient({"url": registry.url}, 5).schema_of(1)
    known = {"url": f"http://127.0.0.1:1, {registry.url}/", "basic.auth.user.info": "ada:secret"}
    assert json.loads(SchemaRegistryClient(known, 5).schema_of(1)) == OLD
    with pytest.raises(UnknownSchema):
        SchemaRegistryClient(known, 5).schema_of(77)
    with pytest.raises(RegistryUnavailable, match=r"gives no answer to /schemas/ids/5 .*refused.*HTTP 500"):
        SchemaRegistryClient(known, 5).schema_of(5)
    for wrong in ({}, {"url": "localhost:8081"}, {"url": "http://x", "basic.auth.user.info": "ada"}):
        with pytest.raises(UsageError, match=r"schema\.registry\."):
            SchemaRegistryClient(wrong, 5)


def test_a_redirect_to_another_address_does_not_get_the_password(registry: FakeRegistry) -> None:
    settings = {"url": registry.url, "basic.auth.user.info": "ada:secret"}
    password = "Basic " + base64.b64encode(b"ada:secret").decode()
    other = FakeRegistry()
    try:
        registry.elsewhere = other.url
        assert json.loads(SchemaRegistryClient(settings, 5).schema_of(1)) == OLD
        assert (registry.authorizations, other.authorizations) == ([password], [None])
    finally:
        other.server.shutdown()
        other.server.server_close()
    registry.elsewhere = f"{registry.url}/moved"  # the same address: the password is for it
    assert json.loads(SchemaRegistryClient(settings, 5).schema_of(2)) == NEW
    assert registry.authorizations == [password] * 3
