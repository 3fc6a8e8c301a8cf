import contextlib
import fcntl
import os
import resource
import threading
import time
from pathlib import Path

import pytest

from barnabas.cli.records import input_records
from barnabas.cli.records.formats import json_lines
from barnabas.cli.records.input_records import (
    InputRecord,
    JsonParser,
    LineParser,
    LineReader,
    Rows,
    parse_header,
    parse_json_record,
)
from barnabas.client.fetch.record_batch import RecordBatch
from barnabas.errors import UnknownTopicOrPartition, UsageError
from barnabas.records.compiled.consumer_records import make_record
from barnabas.types import TopicPartition


def lines_of(path: Path, delimiter: bytes = b"\n") -> list[bytes]:
    with open(path, "rb", buffering=0) as source:
        return [line for lines in LineReader(source, delimiter) for line in lines]


def rows_of(parser: LineParser | JsonParser, *lines: bytes) -> Rows:
    """Without the numbers of the lines."""
    (rows,) = parser.parse(list(lines), 1)
    return rows._replace(lines=())


# --- cutting lines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "lines"), [(b"", []), (b"a", [b"a"]), (b"a\n\nb\n", [b"a", b"", b"b"]), (b"\n", [b""])]
)
def test_lines_with_and_without_a_last_delimiter(tmp_path: Path, data: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    assert lines_of(path) == lines


@pytest.mark.parametrize("delimiter", [b"\n", b"--", b"aab"])
@pytest.mark.parametrize("read_bytes", [1, 2, 3, 5, 1000])
def test_lines_are_the_same_wherever_reads_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delimiter: bytes, read_bytes: int
) -> None:
    monkeypatch.setattr(input_records, "READ_BYTES", read_bytes)
    path = tmp_path / "input"
    for data in (b"aaab\n-\n---x--aabb--\n", b"--", b"aaaaab", b"\n\na-a-b-aab", b"x" * 20 + delimiter + b"y" * 20):
        path.write_bytes(data)
        expected = data.split(delimiter)
        assert lines_of(path, delimiter) == (expected if expected[-1] else expected[:-1])


def test_what_was_read_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_records, "READ_BYTES", 4)
    path = tmp_path / "input"
    path.write_bytes(b"1\n2\n3\nlast")
    with open(path, "rb", buffering=0) as source:
        reader = LineReader(source)
        assert reader.size_bytes == 10
        seen = [(lines, reader.line_count, reader.bytes_read) for lines in reader]
    assert seen == [([b"1", b"2"], 2, 4), ([b"3"], 3, 8), ([b"last"], 4, 10)]


def test_lines_come_before_the_next_ones_are_there_and_somebody_waits() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source:
        os.write(writing, b"a\nb\nc")
        reader = LineReader(source)
        lines = iter(reader)
        assert next(lines) == [b"a", b"b"]
        assert reader.is_idle(0)
        os.write(writing, b"d\n")
        assert not reader.is_idle(0)
        assert next(lines) == [b"cd"]
        os.close(writing)
        assert not reader.is_idle(0), "the end is there"
        assert list(lines) == []
        assert reader.size_bytes == 0, "a pipe has none"


def test_the_input_may_have_a_large_number() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    reading, writing = os.pipe()
    large = fcntl.fcntl(reading, fcntl.F_DUPFD, 1024)  # the first one that select() refuses
    os.close(reading)
    with os.fdopen(large, "rb", buffering=0) as source:
        assert LineReader(source).is_idle(0)
        os.close(writing)
        assert not LineReader(source).is_idle(0)


def test_a_line_without_an_end_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_records, "LINE_BYTES_MAX", 1 << 20)
    reading, writing = os.pipe()

    def write() -> None:
        os.write(writing, b"1\n2\n")
        with contextlib.suppress(BrokenPipeError):
            while True:
                os.write(writing, b"x" * 65536)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb", buffering=0) as source:
        lines = LineReader(source)
        with pytest.raises(UsageError, match=r"input line 3 is longer than 1048576 bytes.*'\\n'.*--delimiter"):
            list(lines)
        assert lines.bytes_read < 3 << 20, "at once"
    writer.join()
    os.close(writing)


def test_a_long_line_takes_time_by_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In reads of a kilobyte: searched and copied anew with each of them, a line 32 times as long would take 1,024
    times as long."""
    monkeypatch.setattr(input_records, "READ_BYTES", 1024)
    path = tmp_path / "input"
    took = []
    for size in (1 << 20, 32 << 20):
        path.write_bytes(b"x" * size)
        before = time.thread_time()
        (line,) = lines_of(path)
        took.append(time.thread_time() - before)
        assert len(line) == size
    assert took[1] < 200 * took[0]


# --- key and value --------------------------------------------------------------------------------------------------


def test_key_and_value_are_split_at_the_first_separator() -> None:
    parser = LineParser(b":", None, (), empty_is_null=False)
    rows = rows_of(parser, b"k:v:w", b"no separator", b":v")
    assert rows == Rows([b"v:w", b"no separator", b"v"], [b"k", None, b""])


def test_empty_becomes_null_where_asked() -> None:
    parser = LineParser(b":", None, (), empty_is_null=True)
    assert rows_of(parser, b"k:", b":v", b"") == Rows([None, b"v", None], [b"k", None, None])
    assert rows_of(LineParser(None, None, (), empty_is_null=True), b"", b"v") == Rows([None, b"v"])


def test_a_fixed_key_gives_way_to_the_lines_own() -> None:
    parser = LineParser(b":", b"fixed", (("h", b"1"),), empty_is_null=False, partition=2)
    assert rows_of(parser, b"v", b"k:v") == Rows([b"v", b"v"], [b"fixed", b"k"], {"h": b"1"}, partition=2)
    assert rows_of(LineParser(None, b"fixed", (), empty_is_null=False), b"k:v") == Rows([b"k:v"], [b"fixed"])


def test_rows_know_their_lines() -> None:
    (rows,) = LineParser(None, None, (), empty_is_null=False).parse([b"a", b"b"], 7)
    assert list(rows.lines) == [7, 8]
    lines = [
        b'{"value": "1", "partition": 1}',
        b"",
        b'{"value": "2", "partition": 0}',
        b'{"value": "3", "partition": 1}',
    ]
    assert [(r.partition, r.lines) for r in JsonParser("t").parse(lines, 7)] == [(0, [9]), (1, [7, 10])]


def test_headers() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_header("=b")


def test_a_header_that_repeats_stays_so() -> None:
    twice = (("h", b"1"), ("h", b"2"))
    assert rows_of(LineParser(None, None, twice, empty_is_null=False), b"v", b"w").headers == [twice, twice]


# --- JSON -----------------------------------------------------------------------------------------------------------


def test_what_consume_prints_produce_reads() -> None:
    headers = (("h", b"\xfe"), ("n", None), ("h", b"text"))
    record = make_record("t", 2, 5, 1357016400000, 0, b"\xff", "ü".encode(), headers)
    line = json_lines(RecordBatch.of(TopicPartition("t", 2), [record]))
    assert parse_json_record(line, 1) == InputRecord(
        record.key, record.value, record.headers, partition=2, timestamp=1357016400000, topic="t"
    )


def test_other_json_values_are_written_as_json() -> None:
    parsed = parse_json_record(b'{"key": 1, "value": {"a": [1, null]}, "headers": {"h": "x"}}', 1)
    assert parsed[:3] == (b"1", b'{"a":[1,null]}', (("h", b"x"),))


def test_a_record_printed_without_a_timestamp_gets_one() -> None:
    assert parse_json_record(b'{"value": "v", "timestamp": -1}', 1).timestamp is None
    (stamp, other) = rows_of(JsonParser("t"), b'{"timestamp": 5}', b'{"timestamp": -1}').timestamps or ()
    assert stamp == 5
    assert other > 1_700_000_000_000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 7 is not JSON"),
        (b"\xff", "line 7 is not JSON"),
        (b"[" * 100_000, "line 7 is not JSON"),
        (b"[]", "line 7 is not a JSON object"),
        (b'{"val": 1}', "unknown key 'val'"),
        (b'{"partition": "x"}', "partition 'x' is not a whole number"),
        (b'{"partition": -2}', "line 7: partition -2 is not from 0 to 2147483647"),
        (b'{"timestamp": -2}', "line 7: timestamp -2 is not from -1"),
        (b'{"key_base64": "?"}', "line 7"),
        (b'{"headers": 5}', "line 7"),
        (b'{"headers": [["a"]]}', "line 7"),
        (b'{"headers": {"\\ud800": "x"}}', "line 7"),
    ],
)
def test_bad_json_lines_are_named_by_their_number(line: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_json_record(line, 7)


def test_a_partition_is_that_of_the_topic_named_beside_it() -> None:
    parser = JsonParser("t", partition_count=4)
    lines = [b'{"value": "1", "partition": 3}', b'{"value": "2", "partition": 3, "topic": "t"}']
    assert rows_of(parser, *lines).partition == 3
    assert rows_of(parser, b'{"value": "1", "partition": 9, "topic": "other"}').partition is None
    assert rows_of(parser._replace(partition=1), b'{"value": "1", "partition": 3}').partition == 1


def test_the_order_within_a_partition_is_that_of_the_lines() -> None:
    def parsed(*partitions: int | None) -> list[tuple[int | None, list[bytes | None]]]:
        lines = [
            b'{"value": "%d"%s}' % (number, b"" if partition is None else b', "partition": %d' % partition)
            for number, partition in enumerate(partitions)
        ]
        return [(rows.partition, rows.values) for rows in JsonParser("t").parse(lines, 1)]

    assert parsed(1, 0, 1, 0) == [(0, [b"1", b"3"]), (1, [b"0", b"2"])]
    assert parsed(None, None) == [(None, [b"0", b"1"])]
    assert parsed(1, None, 1) == [(1, [b"0"]), (None, [b"1"]), (1, [b"2"])], "any of them may be partition 1's"


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (b"{", UsageError, "input line 12 is not JSON"),
        (b'{"partition": 4}', UnknownTopicOrPartition, "input line 12: topic 't' has partitions 0 to 3, not 4"),
    ],
)
def test_records_before_a_bad_line_are_given_first(bad: bytes, error: type[Exception], words: str) -> None:
    parsed = JsonParser("t", partition_count=4).parse([b'{"value": "1"}', b"", bad, b'{"value": "2"}'], 10)
    assert next(parsed).values == [b"1"]
    with pytest.raises(error, match=words):
        next(parsed)


def test_the_size_of_rows_is_that_of_keys_and_values() -> None:
    rows = Rows([b"12", None, b"345"], [b"k", b"", None])
    assert rows.size_bytes(range(3)) == 6
    assert rows.size_bytes([0, 1]) == 3
    assert Rows([b"12"]).size_bytes([0]) == 2
