"""Parses standard input or a file into records: lines with a key, a separator and a value, or JSON objects."""

import base64
import os
import select
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO, Final, NamedTuple

from barnabas.client.arguments import INT32_MAX, INT64_MAX
from barnabas.errors import UnknownTopicOrPartition, UsageError
from barnabas.printable import is_text
from barnabas.records.record import Headers

__all__ = [
    "InputRecord",
    "JsonParser",
    "LineParser",
    "LineReader",
    "Rows",
    "check_partition",
    "parse_header",
    "parse_json_record",
]

READ_BYTES: Final = 256 * 1024
"""Larger blocks would leave the processor's cache before they are sent."""
LINE_BYTES_MAX: Final = 100 * 1024 * 1024
"""The largest request that brokers take (socket.request.max.bytes)."""
JSON_KEYS: Final = frozenset(
    ("topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers")
)


class LineReader:
    """Splits the bytes of a file descriptor into lines, those of one read at a time."""

    def __init__(self, source: BinaryIO, delimiter: bytes = b"\n") -> None:
        self.line_count = 0
        """The number of the last line that was yielded."""
        self.bytes_read = 0
        status = os.fstat(source.fileno())
        self.size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else 0
        """The size of a file; 0 for a pipe or a terminal."""
        self._source = source
        self._delimiter = delimiter

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yields lists of lines without their delimiters, which the last line need not have. Raises UsageError for a
        line that is too long.

        `begun` is the part of the unfinished line that contains no delimiter. Only the bytes behind it, in which one
        may begin, are searched again, so that the time for a line is proportional to its length.
        """
        descriptor, delimiter = self._source.fileno(), self._delimiter
        overlap = len(delimiter) - 1
        begun = bytearray()
        last = b""
        while chunk := os.read(descriptor, READ_BYTES):
            self.bytes_read += len(chunk)
            lines = (last + chunk).split(delimiter)
            last = lines.pop()
            if lines:
                if begun:
                    lines[0] = bytes(begun) + lines[0]
                    begun.clear()
                self.line_count += len(lines)
                yield lines
            searched = max(len(last) - overlap, 0)
            begun += last[:searched]
            last = last[searched:]
            if len(begun) > LINE_BYTES_MAX:
                raise UsageError(
                    f"input line {self.line_count + 1} is longer than {LINE_BYTES_MAX} bytes, more than a broker takes"
                    f" at a time: is {_printable(delimiter)} what ends a record (--delimiter)?"
                )
        if begun or last:
            self.line_count += 1
            yield [bytes(begun) + last]

    def is_idle(self, timeout_s: float) -> bool:
        """Returns whether no input comes for that long, as when a person types."""
        ready = select.poll()  # not select: the number of this input may be 1024 or more
        ready.register(self._source, select.POLLIN)
        return not ready.poll(timeout_s * 1000)


def _printable(delimiter: bytes) -> str:
    return repr(delimiter)[1:]


class Rows(NamedTuple):
    """Records for one `Producer.send_many`, in the order of their lines; all have the same partition, if any."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: Mapping[str, bytes | None] | list[Headers] | None = None
    timestamps: list[int] | None = None
    partition: int | None = None
    lines: Sequence[int] = ()
    """The line number of each record."""

    def size_bytes(self, numbers: Iterable[int]) -> int:
        """Returns the size of the keys and values of these rows."""
        columns = (self.values, self.keys or ())
        return sum(len(column[number] or b"") for number in numbers for column in columns if column)


class LineParser(NamedTuple):
    """`key<separator>value`, or the value alone. A line without the separator is a value without a key."""

    separator: bytes | None
    key: bytes | None
    headers: Headers
    empty_is_null: bool
    partition: int | None = None

    def parse(self, lines: list[bytes], first_number: int) -> Iterator[Rows]:
        """Yields the lines as records."""
        keys: list[bytes | None] | None = None
        values: list[bytes | None] = [*lines]
        separator = self.separator
        if separator is not None:
            parts = [line.partition(separator) for line in lines]
            keys = [key if found else self.key for key, found, _ in parts]
            values = [value if found else line for line, found, value in parts]
        elif self.key is not None:
            keys = [self.key] * len(lines)
        if self.empty_is_null:
            keys = None if keys is None else [key or None for key in keys]
            values = [value or None for value in values]
        numbers = range(first_number, first_number + len(lines))
        yield Rows(values, keys, self._headers(len(lines)), partition=self.partition, lines=numbers)

    def _headers(self, count: int) -> Mapping[str, bytes | None] | list[Headers] | None:
        """Returns the headers of all records, as a mapping unless a name repeats."""
        by_name = dict(self.headers)
        if len(by_name) < len(self.headers):
            return [self.headers] * count
        return by_name or None


class InputRecord(NamedTuple):
    """The record of a JSON line; None for fields that the line does not have."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None


class JsonParser(NamedTuple):
    """Each line is an object as `barnabas consume --json` prints it, for another topic or the same.

    `topic` and `offset` in a line are those from which the record was read. The record is written to this class's
    `topic`, and to the partition in the line unless the line names another topic.
    """

    topic: str
    partition: int | None = None
    """The partition of all records; None where the lines or the keys decide."""
    partition_count: int | None = None
    """None while it is unknown."""

    def parse(self, lines: list[bytes], first_number: int) -> Iterator[Rows]:
        """Yields the lines as records, without empty lines. Raises UsageError or UnknownTopicOrPartition with the line
        number of a bad one, behind the records before it."""
        records: list[tuple[int | None, int, InputRecord]] = []
        failure = None
        for number, line in enumerate(lines, first_number):
            try:
                if line:
                    record = parse_json_record(line, number)
                    records.append((self._partition_of(record, number), number, record))
            except (UsageError, UnknownTopicOrPartition) as error:
                failure = error
                break
        yield from _rows_by_partition(records)
        if failure is not None:
            raise failure

    def _partition_of(self, record: InputRecord, number: int) -> int | None:
        if self.partition is not None or record.topic not in (None, self.topic):
            return self.partition
        check_partition(self.topic, record.partition, self.partition_count, f"input line {number}: ")
        return record.partition


def check_partition(topic: str, partition: int | None, partition_count: int | None, prefix: str = "") -> None:
    """Raises UnknownTopicOrPartition, with a text that begins with the prefix, unless the count is None."""
    if partition is not None and partition_count is not None and not 0 <= partition < partition_count:
        raise UnknownTopicOrPartition(
            f"{prefix}topic {topic!r} has partitions 0 to {partition_count - 1}, not {partition}"
        )


def _rows_by_partition(records: list[tuple[int | None, int, InputRecord]]) -> Iterator[Rows]:
    """Groups (partition, line number, record) by partition, and keeps the order within each partition.

    Records without a partition may go to any of them, so that then only neighbours are grouped.
    """
    if all(partition is not None for partition, _, _ in records):
        records = sorted(records, key=itemgetter(0))
    for partition, run in groupby(records, itemgetter(0)):
        group = list(run)
        rows = [record for _, _, record in group]
        stamped = any(row.timestamp is not None for row in rows)
        now_ms = time.time_ns() // 1_000_000
        yield Rows(
            [row.value for row in rows],
            [row.key for row in rows] if any(row.key is not None for row in rows) else None,
            [row.headers for row in rows] if any(row.headers for row in rows) else None,
            [now_ms if row.timestamp is None else row.timestamp for row in rows] if stamped else None,
            partition,
            [number for _, number, _ in group],
        )


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Parses `name=value`; `name` alone is a header with a null value. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name or not is_text(name):
        raise UsageError(f"header {text!r}: must be NAME=VALUE, and the name UTF-8")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def parse_json_record(line: bytes, number: int) -> InputRecord:
    """Parses a JSON object as `barnabas consume --json` prints it. Raises UsageError with the line's number."""
    import json

    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"input line {number} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise UsageError(f'input line {number} is not a JSON object, such as {{"key": "k", "value": "v"}}')
    unknown = body.keys() - JSON_KEYS
    if unknown:
        raise UsageError(f"input line {number}: unknown key {min(unknown)!r}; use {', '.join(sorted(JSON_KEYS))}")
    try:
        timestamp = _integer(body, "timestamp", INT64_MAX, lowest=-1)
        return InputRecord(
            _bytes(body, "key"),
            _bytes(body, "value"),
            _headers(body.get("headers") or ()),
            _integer(body, "partition", INT32_MAX),
            None if timestamp == -1 else timestamp,  # records without a timestamp are printed so
            body.get("topic"),
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"input line {number}: {error}") from None


def _bytes(body: dict[str, Any], name: str) -> bytes | None:
    if body.get(f"{name}_base64") is not None:
        return base64.b64decode(body[f"{name}_base64"], validate=True)
    return _as_bytes(body.get(name))


def _as_bytes(value: Any) -> bytes | None:
    """Returns texts as they are, and other values as compact JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _integer(body: dict[str, Any], name: str, highest: int, lowest: int = 0) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} {value!r} is not a whole number")
    if not lowest <= value <= highest:
        raise ValueError(f"{name} {value} is not from {lowest} to {highest}")
    return value


def _headers(value: Any) -> Headers:
    pairs = value.items() if isinstance(value, dict) else value
    headers: list[tuple[str, bytes | None]] = []
    for given, content in pairs:
        name = str(given)
        name.encode()  # half a surrogate pair is no text
        if isinstance(content, dict) and content.keys() == {"base64"}:
            headers.append((name, base64.b64decode(content["base64"], validate=True)))
        else:
            headers.append((name, _as_bytes(content)))
    return tuple(headers)
