import pytest

from barnabas.cli.formats import compile_format, record_as_dict, unescape
from barnabas.errors import UsageError
from barnabas.records.record import Record

RECORD = Record(7, 1357016400123, b"key", b"value", (("a", b"1"), ("b", None)))
EMPTY = Record(8, -1, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%k %v\n", b"key value\n"),
        (r"%t[%p]@%o %T", b"flights[3]@7 1357016400123"),
        ("%s|%S|%V|%K", b"value|5|5|3"),
        ("%h", b"a=1,b=NULL"),
        ("%d", b"2013-01-01T05:00:00.123Z"),
        ("100%% %%k", b"100% %k"),
        (r"\x41\t\\%o\0", b"A\t\\7\0"),
        ("%R%v", b"\0\0\0\x05value"),
        ("äöü %k", "äöü key".encode()),
        ("", b""),
    ],
)
def test_tokens(text: str, expected: bytes) -> None:
    assert compile_format(text)("flights", 3, RECORD) == expected


def test_null_fields_are_empty_or_named_and_have_length_minus_one() -> None:
    assert compile_format("[%k|%v|%K|%S|%T|%d]")("t", 0, EMPTY) == b"[||-1|-1|-1|-]"
    assert compile_format("%k|%v", null=b"NULL")("t", 0, EMPTY) == b"NULL|NULL"
    assert compile_format("%R")("t", 0, EMPTY) == b"\xff\xff\xff\xff"


def test_keys_and_values_in_other_encodings() -> None:
    record = Record(0, 0, b"\xff\x00", b"\xfe")
    assert compile_format("%k %v", encode_key="hex", encode_value="base64")("t", 0, record) == b"ff00 /g=="
    assert compile_format("%k", encode_key="repr")("t", 0, record) == rb"\xff\x00"


@pytest.mark.parametrize("text", ["%q", "%", r"\q", r"\x4", r"\xzz", "a%"])
def test_what_does_not_exist_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match=r"use|needs"):
        compile_format(text)


def test_unescape_keeps_bytes_that_are_not_utf8() -> None:
    assert unescape(b"\xff".decode("utf-8", "surrogateescape")) == b"\xff"


def test_json_has_base64_for_what_is_no_text() -> None:
    assert record_as_dict("t", 1, Record(2, 3, b"\xff", "ü".encode(), (("h", b"\xfe"), ("n", None)))) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key_base64": "/w==",
        "value": "ü",
        "headers": [["h", {"base64": "/g=="}], ["n", None]],
    }
