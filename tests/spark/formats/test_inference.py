"""The schema of JSON values, found out from some of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from barnabas.errors import UsageError
from barnabas.spark.formats.inference import ddl_of, infer_schema


def ddl(*values: bytes | None) -> str:
    return ddl_of(infer_schema(values, "topic orders"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b'{"b":1,"a":"x"}'], "struct<a: string, b: bigint>"),
        ([b'{"a":1}', b'{"a":1.5}', None, b'{"b":true}'], "struct<a: double, b: boolean>"),
        ([b'{"a":1}', b'{"a":"x"}'], "struct<a: string>"),
        ([b'{"a":null}'], "struct<a: string>"),
        ([b'{"a":[]}', b'{"a":[{"x":1}]}', b'{"a":[{"y":null}]}'], "struct<a: array<struct<x: bigint, y: string>>>"),
        ([b'{"a":{}, "b":1}'], "struct<b: bigint>"),
        ([b'{"a":99999999999999999999}'], "struct<a: string>"),
        ([b'{"a b":1, "x`y": 2}'], "struct<`a b`: bigint, `x``y`: bigint>"),
        ([b"?", b"[1]", b'{"a":1}'], "struct<a: bigint>"),
    ],
)
def test_schemas(values: list[bytes | None], expected: str) -> None:
    assert ddl(*values) == expected


def test_nothing_to_go_by() -> None:
    with pytest.raises(UsageError, match="topic orders has no records to find the schema in"):
        ddl()
    with pytest.raises(UsageError, match=r"none of the newest 2 values of topic orders is a JSON object .*not JSON"):
        ddl(b"?", b"1")
    with pytest.raises(UsageError, match="they are empty"):
        ddl(b"{}")


NUMBERS = st.sampled_from(
    [b'{"a":1}', b'{"a":1.5}', b'{"a":"x"}', b'{"a":null}', b'{"b":[1]}', b'{"b":[{"c":1}]}', b"{}"]
)


@settings(max_examples=50)
@given(st.lists(NUMBERS, min_size=1, max_size=6).flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_the_order_of_the_values_is_nothing_to_it(rows: tuple[list[bytes], list[bytes]]) -> None:
    one, other = rows
    try:
        expected = ddl(*one)
    except UsageError:
        with pytest.raises(UsageError):
            ddl(*other)
        return
    assert ddl(*other) == expected
