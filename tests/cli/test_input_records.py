import json
import os
from pathlib import Path

import pytest

from barnabas.cli.formats import record_as_dict
from barnabas.cli.input_records import InputRecord, LineParser, iter_delimited, parse_header, parse_json_record
from barnabas.errors import UsageError
from barnabas.records.record import Record


def test_key_and_value_are_split_at_the_first_separator() -> None:
    parser = LineParser(b":", None, (), empty_is_null=False)
    assert parser.parse(b"k:v:w")[:2] == (b"k", b"v:w")
    assert parser.parse(b"no separator")[:2] == (None, b"no separator")
    assert parser.parse(b":v")[:2] == (b"", b"v")


def test_empty_becomes_null_where_asked() -> None:
    parser = LineParser(b":", None, (), empty_is_null=True)
    assert parser.parse(b"k:")[:2] == (b"k", None)
    assert parser.parse(b":v")[:2] == (None, b"v")


def test_a_fixed_key_gives_way_to_the_lines_own() -> None:
    parser = LineParser(b":", b"fixed", (("h", b"1"),), empty_is_null=False)
    assert parser.parse(b"v") == InputRecord(b"fixed", b"v", (("h", b"1"),))
    assert parser.parse(b"k:v").key == b"k"


def test_headers() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_header("=b")


@pytest.mark.parametrize(
    ("data", "lines"), [(b"", []), (b"a", [b"a"]), (b"a\n\nb\n", [b"a", b"", b"b"]), (b"\n", [b""])]
)
def test_lines_with_and_without_a_last_delimiter(tmp_path: Path, data: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    with open(path, "rb") as source:
        assert [line for line, _ in iter_delimited(source)] == lines


def test_lines_are_told_from_those_that_are_still_to_come() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source:
        os.write(writing, b"a\nb\nc")
        lines = iter_delimited(source)
        assert [next(lines), next(lines)] == [(b"a", True), (b"b", False)]
        os.close(writing)
        assert list(lines) == [(b"c", False)]


def test_what_consume_prints_produce_reads() -> None:
    record = Record(5, 1357016400000, b"\xff", "ü".encode(), (("h", b"\xfe"), ("n", None), ("h", b"text")))
    line = json.dumps(record_as_dict("t", 2, record)).encode()
    assert parse_json_record(line, 1) == InputRecord(
        record.key, record.value, record.headers, partition=2, timestamp=1357016400000, topic="t"
    )


def test_other_json_values_are_written_as_json() -> None:
    parsed = parse_json_record(b'{"key": 1, "value": {"a": [1, null]}, "headers": {"h": "x"}}', 1)
    assert parsed[:3] == (b"1", b'{"a":[1,null]}', (("h", b"x"),))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 7 is not JSON"),
        (b"[]", "line 7 is not a JSON object"),
        (b'{"val": 1}', "unknown key 'val'"),
        (b'{"partition": "x"}', "partition 'x' is not a whole number"),
        (b'{"key_base64": "?"}', "line 7"),
    ],
)
def test_bad_json_lines_are_named_by_their_number(line: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_json_record(line, 7)
