"""Lines of standard input or a file to records: key and value with a separator, or JSON objects."""

import base64
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from barnabas.errors import UsageError
from barnabas.records.record import Headers

__all__ = ["InputRecord", "LineParser", "iter_delimited", "parse_header", "parse_json_record"]

READ_BYTES: Final = 1 << 16
LINE_BYTES_MAX: Final = 512 * 1024 * 1024
"""A line longer than the largest batch that a broker could take."""
JSON_KEYS: Final = frozenset(
    ("topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers")
)


class InputRecord(NamedTuple):
    """What one line says; None where it says nothing."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None


class LineParser(NamedTuple):
    """`key<separator>value`, or the value alone. A line without the separator is a value without a key."""

    separator: bytes | None
    key: bytes | None
    headers: Headers
    empty_is_null: bool

    def parse(self, line: bytes) -> InputRecord:
        key, value = self.key, line
        if self.separator is not None:
            first, found, rest = line.partition(self.separator)
            if found:
                key, value = first, rest
        if self.empty_is_null:
            return InputRecord(key or None, value or None, self.headers)
        return InputRecord(key, value, self.headers)


def iter_delimited(source: BinaryIO, delimiter: bytes = b"\n") -> Iterator[tuple[bytes, bool]]:
    """(line without its delimiter, whether more lines are already here). A missing last delimiter is no matter."""
    rest = b""
    descriptor = source.fileno()
    import os

    while chunk := os.read(descriptor, READ_BYTES):
        lines = (rest + chunk).split(delimiter)
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise UsageError(f"input: a line is longer than {LINE_BYTES_MAX} bytes; is the delimiter right?")
        last = len(lines) - 1
        for index, line in enumerate(lines):
            yield line, index < last
    if rest:
        yield rest, False


def parse_header(text: str) -> tuple[str, bytes | None]:
    """`name=value`; `name` alone is a header with a null value. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"header {text!r}: must be NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def parse_json_record(line: bytes, number: int) -> InputRecord:
    """One JSON object as `barnabas consume --json` prints it. Raises UsageError with the line's number."""
    import json

    try:
        body = json.loads(line)
    except ValueError as error:
        raise UsageError(f"input line {number} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise UsageError(f'input line {number} is not a JSON object, such as {{"key": "k", "value": "v"}}')
    unknown = body.keys() - JSON_KEYS
    if unknown:
        raise UsageError(f"input line {number}: unknown key {min(unknown)!r}; use {', '.join(sorted(JSON_KEYS))}")
    try:
        return InputRecord(
            _bytes(body, "key"),
            _bytes(body, "value"),
            _headers(body.get("headers") or ()),
            _integer(body, "partition"),
            _integer(body, "timestamp"),
            body.get("topic"),
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"input line {number}: {error}") from None


def _bytes(body: dict[str, Any], name: str) -> bytes | None:
    if body.get(f"{name}_base64") is not None:
        return base64.b64decode(body[f"{name}_base64"], validate=True)
    return _as_bytes(body.get(name))


def _as_bytes(value: Any) -> bytes | None:
    """Texts as they are, other JSON values as compact JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _integer(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name} {value!r} is not a whole number")
    return value


def _headers(value: Any) -> Headers:
    pairs = value.items() if isinstance(value, dict) else value
    headers: list[tuple[str, bytes | None]] = []
    for name, content in pairs:
        if isinstance(content, dict) and content.keys() == {"base64"}:
            headers.append((str(name), base64.b64decode(content["base64"], validate=True)))
        else:
            headers.append((str(name), _as_bytes(content)))
    return tuple(headers)
