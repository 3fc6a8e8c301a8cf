import json

import pytest

from barnabas.cli.records.formats import compile_format, json_lines, unescape
from barnabas.client.fetch.completed_fetch import CompletedFetch
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.errors import UsageError
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.types import TopicPartition

RECORD = Record(7, 1357016400123, b"key", b"value", (("a", b"1"), ("b", None)))
EMPTY = Record(8, -1, None, None)


def batch(*records: Record, topic: str = "flights", partition: int = 3) -> RecordBatch:
    """As a consumer gets it."""
    first = records[0].offset
    data = build_batch(records, base_offset=first)
    found = CompletedFetch(TopicPartition(topic, partition), data, first).read_batch()
    assert found is not None
    return found


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
    assert compile_format(text)(batch(RECORD)) == expected


def test_null_fields_are_empty_or_named_and_have_length_minus_one() -> None:
    assert compile_format("[%k|%v|%K|%S|%T|%d]")(batch(EMPTY)) == b"[||-1|-1|-1|-]"
    assert compile_format("%k|%v", null=b"NULL")(batch(EMPTY)) == b"NULL|NULL"
    assert compile_format("%R")(batch(EMPTY)) == b"\xff\xff\xff\xff"


def test_keys_and_values_in_other_encodings() -> None:
    record = Record(0, 0, b"\xff\x00", b"\xfe")
    assert compile_format("%k %v", encode_key="hex", encode_value="base64")(batch(record)) == b"ff00 /g=="
    assert compile_format("%k", encode_key="repr")(batch(record)) == rb"\xff\x00"


@pytest.mark.parametrize("text", ["%q", "%", r"\q", r"\x4", r"\xzz", "a%"])
def test_what_does_not_exist_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match=r"use|needs"):
        compile_format(text)


def test_unescape_keeps_bytes_that_are_not_utf8() -> None:
    assert unescape(b"\xff".decode("utf-8", "surrogateescape")) == b"\xff"


def test_all_records_of_a_batch_come_one_after_the_other() -> None:
    records = [Record(7, 5, b"50%", b"%d"), Record(8, 6, None, b""), Record(9, 7, b"k", None)]
    assert compile_format(r"%%b %o=%k|%v|%T\n", null=b"?")(batch(*records)) == b"%b 7=50%|%d|5\n%b 8=?||6\n%b 9=k|?|7\n"
    assert compile_format("%p%%")(batch(*records)) == b"3%3%3%"


def test_records_that_were_picked_are_printed_as_whole_batches_are() -> None:
    whole = batch(Record(7, 5, b"a", b"1"), Record(8, 6, b"b", b"2"))
    picked = RecordBatch.of(TopicPartition("flights", 3), [whole[1]])
    assert compile_format("%o %T %k %v;")(picked) == b"8 6 b 2;"
    assert compile_format("%o %T %k %v;")(RecordBatch.of(TopicPartition("flights", 3), [])) == b""


def test_json_has_base64_for_what_is_no_text() -> None:
    headers = (("h", b"\xfe"), ("n", None), ('"', "ü".encode()))
    records = [Record(2, 3, b"\xff", 'ü"\n'.encode(), headers), Record(3, -1, None, b"")]
    place = {"topic": "t", "partition": 1}
    assert [json.loads(line) for line in json_lines(batch(*records, topic="t", partition=1)).splitlines()] == [
        place
        | {
            "offset": 2,
            "timestamp": 3,
            "key_base64": "/w==",
            "value": 'ü"\n',
            "headers": [["h", {"base64": "/g=="}], ["n", None], ['"', "ü"]],
        },
        place | {"offset": 3, "timestamp": -1, "key": None, "value": "", "headers": []},
    ]


def test_a_json_line_is_what_the_json_module_writes() -> None:
    line = json_lines(batch(RECORD)).decode()
    assert line == json.dumps(json.loads(line), ensure_ascii=False) + "\n"
