"""Protobuf values by their descriptors. No Spark."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2  # noqa: E402
from pyspark.sql.pandas.types import to_arrow_type  # noqa: E402

from barnabas.errors import UsageError  # noqa: E402
from barnabas.spark.formats.options import FormatOptions  # noqa: E402
from barnabas.spark.formats.values import make_decoder  # noqa: E402

F = descriptor_pb2.FieldDescriptorProto


def field(name: str, number: int, kind: int, *, repeated: bool = False, of: str = "", optional: bool = False) -> Any:
    found = F(name=name, number=number, type=kind, label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL)
    if of:
        found.type_name = of
    if optional:
        found.proto3_optional = True
        found.oneof_index = 0
    return found


def descriptors() -> Any:
    """shop.Order and what it needs, as protoc would describe it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="SOME", number=1)
    line = file.message_type.add(name="Line")
    line.field.extend([field("sku", 1, F.TYPE_STRING), field("count", 2, F.TYPE_SINT32)])
    file.message_type.add(name="Empty")
    loop = file.message_type.add(name="Loop")
    loop.field.append(field("next", 1, F.TYPE_MESSAGE, of=".shop.Loop"))
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.extend([field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_MESSAGE, of=".shop.Line")])
    order.oneof_decl.add(name="_note")
    order.field.extend(
        [
            field("id", 1, F.TYPE_INT64),
            field("big", 2, F.TYPE_UINT64),
            field("small", 3, F.TYPE_UINT32),
            field("share", 4, F.TYPE_DOUBLE),
            field("note", 5, F.TYPE_STRING, optional=True),
            field("raw", 6, F.TYPE_BYTES),
            field("kind", 7, F.TYPE_ENUM, of=".shop.Kind"),
            field("lines", 8, F.TYPE_MESSAGE, repeated=True, of=".shop.Line"),
            field("first", 9, F.TYPE_MESSAGE, of=".shop.Line"),
            field("tags", 10, F.TYPE_STRING, repeated=True),
            field("counts", 11, F.TYPE_MESSAGE, repeated=True, of=".shop.Order.CountsEntry"),
            field("at", 12, F.TYPE_MESSAGE, of=".google.protobuf.Timestamp"),
            field("empty", 13, F.TYPE_MESSAGE, of=".shop.Empty"),
        ]
    )
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file])


SET = descriptors()
POOL = descriptor_pool.DescriptorPool()
for each in SET.file:
    POOL.AddSerializedFile(each.SerializeToString())
ORDER = message_factory.GetMessageClass(POOL.FindMessageTypeByName("shop.Order"))


@pytest.fixture
def format_options(tmp_path: Path) -> FormatOptions:
    return options_for(tmp_path)


def options_for(directory: Path, name: str = "shop.Order", content: bytes | None = None) -> FormatOptions:
    path = directory / "shop.desc"
    path.write_bytes(SET.SerializeToString() if content is None else content)
    return FormatOptions.parse({"valueFormat": "protobuf", "valueSchema": str(path), "messageName": name})


def decoded(format_options: FormatOptions, values: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    assert format_options.value_type is not None
    kind = to_arrow_type(format_options.value_type, timezone="UTC")
    failures: dict[int, str] = {}
    found = make_decoder(format_options, kind).decode(pa.array(values, pa.binary()), failures)
    assert found.type == kind
    found.validate(full=True)
    return found.to_pylist(), failures


def test_types(format_options: FormatOptions) -> None:
    assert format_options.value_type is not None
    assert format_options.value_type.simpleString() == (
        "struct<id:bigint,big:decimal(20,0),small:bigint,share:double,note:string,raw:binary,kind:string,"
        "lines:array<struct<sku:string,count:int>>,first:struct<sku:string,count:int>,tags:array<string>,"
        "counts:map<string,struct<sku:string,count:int>>,at:timestamp>"
    )


def test_a_message(format_options: FormatOptions) -> None:
    order = ORDER(id=-7, big=2**64 - 1, small=2**32 - 1, share=0.5, note="n", raw=b"r", kind=1, tags=["a", "b"])
    order.lines.add(sku="x", count=-2)
    order.first.sku = "y"
    order.counts["k"].count = 3
    order.at.FromDatetime(datetime(2026, 1, 31, 1, 2, 3, 456789, tzinfo=UTC))
    (found,), failures = decoded(format_options, [order.SerializeToString()])
    assert not failures
    assert found == {
        "id": -7, "big": Decimal(2**64 - 1), "small": 2**32 - 1, "share": 0.5, "note": "n", "raw": b"r", "kind": "SOME",
        "lines": [{"sku": "x", "count": -2}], "first": {"sku": "y", "count": 0}, "tags": ["a", "b"],
        "counts": [("k", {"sku": "", "count": 3})], "at": datetime(2026, 1, 31, 1, 2, 3, 456789, tzinfo=UTC),
    }  # fmt: skip


def test_what_is_not_set(format_options: FormatOptions) -> None:
    """Its default where the message cannot tell, else null; an enum's unknown number is shown as it is."""
    (found, unknown), failures = decoded(format_options, [b"", ORDER(kind=77).SerializeToString()])
    assert not failures
    assert (found["id"], found["kind"], found["raw"], found["tags"], found["counts"]) == (0, "NONE", b"", [], [])
    assert (found["note"], found["first"], found["at"]) == (None, None, None)
    assert unknown["kind"] == "77"


def test_times_that_do_not_fit(format_options: FormatOptions) -> None:
    late = ORDER()
    late.at.seconds = 2**62
    found, failures = decoded(format_options, [b"", late.SerializeToString(), b""])
    assert failures.keys() == {1}
    assert found[1] is None


SAMPLE = ORDER(id=5, note="text", tags=["a", "bc"], share=1.5)
SAMPLE.lines.add(sku="sku", count=4)
SAMPLE_BYTES = SAMPLE.SerializeToString()


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, len(SAMPLE_BYTES)), st.binary(max_size=4), st.booleans())
def test_damaged_bytes_are_corrupt_or_something_else(
    format_options: FormatOptions, place: int, other: bytes, cut: bool
) -> None:
    value = SAMPLE_BYTES[:place] + other + (b"" if cut else SAMPLE_BYTES[place + len(other) :])
    found, failures = decoded(format_options, [SAMPLE_BYTES, value, SAMPLE_BYTES])
    assert failures.keys() <= {1}
    assert found[0] == found[2]
    assert (found[1] is None) == bool(failures)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs option messageName; there are .*shop\.Order"):
        options_for(tmp_path, "")
    with pytest.raises(UsageError, match=r"messageName=shop\.Orders is not among the descriptors"):
        options_for(tmp_path, "shop.Orders")
    with pytest.raises(UsageError, match="contains itself"):
        options_for(tmp_path, "shop.Loop")
    with pytest.raises(UsageError, match="a message without fields"):
        options_for(tmp_path, "shop.Empty")
    with pytest.raises(UsageError, match="include_imports"):
        options_for(tmp_path, content=descriptor_pb2.FileDescriptorSet(file=SET.file[1:]).SerializeToString())
    with pytest.raises(UsageError, match="is no set of descriptors"):
        options_for(tmp_path, content=b"\xff\xff")
    with pytest.raises(UsageError, match="no such file"):
        FormatOptions.parse({"valueFormat": "protobuf", "valueSchema": str(tmp_path / "no"), "messageName": "x"})
    with pytest.raises(UsageError, match="needs option valueSchema: the path"):
        FormatOptions.parse({"valueFormat": "protobuf"})
