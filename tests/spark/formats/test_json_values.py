"""JSON values: Arrow's parser for a batch and ours for one value say the same, whatever the bytes are. No Spark."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import UsageError

pa = pytest.importorskip("pyarrow")

from barnabas.spark.formats.json_values import JsonDecoder  # noqa: E402

TIME = pa.timestamp("us", tz="UTC")
LINE = pa.struct([("sku", pa.string()), ("on", pa.date32()), ("price", pa.decimal128(8, 2))])
ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("name", pa.string()),
        ("share", pa.float64()),
        ("rough", pa.float32()),
        ("open", pa.bool_()),
        ("at", TIME),
        ("local", pa.timestamp("us")),
        ("lines", pa.list_(LINE)),
        ("buyer", pa.struct([("city", pa.string()), ("since", TIME)])),
    ]
)


def both(decoder: JsonDecoder, values: list[bytes]) -> tuple[Any, dict[int, str]]:
    """What the decoder makes of them, which must be what it makes of them one by one."""
    array, failures, slowly = pa.array(values, pa.binary()), {}, {}
    found = decoder.decode(array, failures)
    found.validate(full=True)
    one_by_one = decoder.one_by_one(array, slowly)
    assert failures == slowly
    assert repr(found.cast(one_by_one.type).to_pylist()) == repr(one_by_one.to_pylist())
    return found, failures


def one(kind: Any, text: str | bytes, zone: str = "UTC") -> Any:
    """The field `c` of one document, or why it is corrupt."""
    value = text if isinstance(text, bytes) else b'{"c":' + text.encode() + b"}"
    found, failures = both(JsonDecoder(pa.struct([("c", kind)]), zone), [value])
    return failures[0] if failures else found.field(0)[0].as_py()


SCALARS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.integers(-200, 200),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.text(max_size=6),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    st.datetimes().map(str),
    st.dates().map(date.isoformat),
    st.sampled_from(["NaN", "Infinity", "2020-01-01T24:00:00Z", "2020-02-30", "1.005", "-0", "1e5"]),
)
FIELDS = [field.name for field in ORDER] + ["more", "city", "since", "sku", "on", "price"]
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(FIELDS), DOCUMENTS, max_size=8)
TEXTS = st.builds(
    lambda document, indent, ascii_only, tail: (
        json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode() + tail
    ),
    st.one_of(OBJECTS, DOCUMENTS),
    st.sampled_from([None, None, 1]),
    st.booleans(),
    st.sampled_from([b"", b"", b"\n", b" \r\n", b"{}", b",", b"\0"]),
)


def damaged(value: bytes, place: int, byte: int, cut: bool) -> bytes:
    place %= len(value) + 1
    return value[:place] if cut else value[:place] + bytes([byte]) + value[place + 1 :]


DAMAGED = st.builds(damaged, TEXTS, st.integers(0, 400), st.integers(0, 255), st.booleans())
ROWS = st.lists(
    st.one_of(TEXTS, TEXTS, DAMAGED, st.sampled_from([b"", b"{", b"}", b"]}", b'{"id":[', b'"'])), max_size=40
)


@settings(max_examples=80, deadline=None)
@given(ROWS, st.sampled_from(["UTC", "Europe/Berlin"]))
def test_a_batch_says_what_its_values_say(rows: list[bytes], zone: str) -> None:
    found, _ = both(JsonDecoder(ORDER, zone), rows)
    assert len(found) == len(rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(), st.floats(allow_nan=False)), min_size=1))
def test_what_was_written_comes_back(rows: list[tuple[int, str, float]]) -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    whole = [row for row in rows if not any("\ud800" <= letter <= "\udfff" for letter in row[1])]
    values = [json.dumps(dict(zip("abc", row))).encode() for row in whole]
    found, failures = both(JsonDecoder(kind), values)
    assert not failures
    assert [tuple(row.values()) for row in found.to_pylist()] == whole


@pytest.mark.parametrize("bad", [0, 1, 2, 40, 900])
def test_bad_ones_among_good_ones(bad: int) -> None:
    rows = [b'{"c": %d}' % number for number in range(5000)]
    places = {number * 4999 // max(bad - 1, 1) for number in range(bad)}
    for place in places:
        rows[place] = (b'{"c": 1.5}', b'{"c": 1', b'{"c": 1}{"c": 2}', b"\xff")[place % 4]
    failures: dict[int, str] = {}
    found = JsonDecoder(pa.struct([("c", pa.int64())])).decode(pa.array(rows), failures)
    assert failures.keys() == places
    assert found.to_pylist() == [None if number in places else {"c": number} for number in range(5000)]


def test_values_cannot_run_into_each_other() -> None:
    """Two broken ones that would make a whole one, and one that is two."""
    decoder = JsonDecoder(pa.struct([("c", pa.int64())]))
    _, failures = both(decoder, [b'{"c":1,"x":[', b"]}", b'{"c":2}{"c":3}', b'{"c":4}'])
    assert failures.keys() == {0, 1, 2}
    _, failures = both(decoder, [b'{"x":[{}', b'{}],"c":1}', b'{"c":2}{"c":3}'])
    assert failures.keys() == {0, 1, 2}


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.int64(), "9223372036854775808", "c: 9223372036854775808 does not fit 64 bits"),
        (pa.int64(), "1.0", "c: 1.0 where a whole number is expected"),
        (pa.int64(), '"1"', "c: '1' where a whole number is expected"),
        (pa.int8(), "128", "c: 128 does not fit 8 bits"),
        (pa.float64(), "1", 1.0),
        (pa.float64(), '"-Infinity"', float("-inf")),
        (pa.float64(), "true", "c: true or false where a number is expected"),
        (pa.string(), "1.50", "1.50"),
        (pa.string(), "true", "true"),
        (pa.string(), '{"a": [1.0, "x"]}', '{"a":[1.0,"x"]}'),
        (pa.string(), '"\\ud800"', "c: half a character (a lone surrogate)"),
        (pa.string(), '"\\ud83d\\ude00"', "\U0001f600"),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.binary(), '"?"', "c: '?' is not base64"),
        (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
        (pa.date32(), '"2023-02-29"', "c: '2023-02-29' is not in the calendar"),
        (pa.decimal128(4, 2), "1.005", Decimal("1.01")),
        (pa.decimal128(4, 2), "100", "c: 100 does not fit decimal(4,2)"),
        (pa.map_(pa.string(), pa.int32()), '{"x": 1, "y": null}', [("x", 1), ("y", None)]),
        (pa.list_(pa.int32()), "7", "c: 7 where an array is expected"),
        (TIME, "5", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        (TIME, '"2020-01-01T00:00:00.123456789Z"', datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        (TIME, '"yesterday"', "c: 'yesterday' is no time such as 2013-01-31T05:15:00.000Z"),
        (pa.timestamp("us"), '"2020-01-01 10:00"', datetime(2020, 1, 1, 10)),  # noqa: DTZ001 -- a local time
        (pa.timestamp("us"), '"2020-01-01T10Z"', "c: '2020-01-01T10Z' has a time zone, but the type is a local time"),
    ],
)  # fmt: skip
def test_types(kind: Any, text: str, expected: Any) -> None:
    assert one(kind, text) == expected


def test_zones() -> None:
    assert one(TIME, '"2020-07-01T00:00:00"', "Europe/Berlin") == datetime(2020, 6, 30, 22, tzinfo=UTC)
    assert one(TIME, '"2020-07-01T00:00:00Z"', "Europe/Berlin") == datetime(2020, 7, 1, tzinfo=UTC)
    with pytest.raises(UsageError, match="'Mars' is no time zone"):
        JsonDecoder(pa.struct([("c", TIME)]), "Mars")


def test_documents() -> None:
    decoder = JsonDecoder(pa.struct([("c", pa.int64())]))
    found, failures = both(decoder, [b"null", b"{}", b"", b"[1]", b"{]"])
    assert found.to_pylist()[:2] == [None, {"c": None}]
    assert failures == {
        2: "empty",
        3: "an array where an object is expected",
        4: "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    }
    deep = b'{"c":' + b"[" * 200_000
    assert decoder.decode(pa.array([deep]), failures := {}).null_count == 1
    assert failures == {0: "not JSON: too deep"}


def test_any_depth_of_nesting_that_is_read_can_be_given_as_a_string() -> None:
    decoder = JsonDecoder(pa.struct([("c", pa.string())]))
    for levels in (600, 900):
        nested = '{"a":[' * (levels // 2) + '1,-2.50,"\u00e9",null,true,{}' + "]}" * (levels // 2)
        found, failures = both(decoder, [b'{"c":"before"}', f'{{"c":{nested}}}'.encode(), b'{"c":"after"}'])
        assert failures == {}
        assert found.to_pylist() == [{"c": "before"}, {"c": nested}, {"c": "after"}]


def test_types_that_json_has_nothing_for() -> None:
    with pytest.raises(UsageError, match=r"value\.c\[\]: JSON has no values for the type"):
        JsonDecoder(pa.struct([("c", pa.list_(pa.duration("us")))]))
    with pytest.raises(UsageError, match="keys of a JSON object are texts"):
        JsonDecoder(pa.struct([("c", pa.map_(pa.int64(), pa.int64()))]))
    with pytest.raises(UsageError, match="the field 'c' occurs twice"):
        JsonDecoder(pa.struct([("c", pa.int64()), ("c", pa.int64())]))
    with pytest.raises(UsageError, match="with one field at least"):
        JsonDecoder(pa.struct([]))
