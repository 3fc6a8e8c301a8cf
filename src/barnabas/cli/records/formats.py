"""Renders batches of records by kcat's format strings, such as `%k %v\\n`, or as JSON lines.

    %t topic      %k key            %v, %s value         %h headers, name=value,...
    %p partition  %K key length     %V, %S value length  %R value length, 4 bytes big endian
    %o offset     %T timestamp, ms  %d timestamp, ISO    %% a percent sign

Lengths of what is null are -1. Escapes: \\n \\t \\r \\0 \\\\ \\xHH. Source: kcat's manual; %v, %V and %d are ours.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.framework.output import time_text
from barnabas.errors import UsageError
from barnabas.records.record import Headers

if TYPE_CHECKING:
    from barnabas.client.fetch.record_batch import RecordBatch

__all__ = [
    "ENCODINGS",
    "ESCAPES",
    "FORMAT_NOTES",
    "STARTS",
    "TOKENS",
    "JsonText",
    "Renderer",
    "compile_format",
    "json_lines",
    "text_or_base64",
    "unescape",
]

Renderer = Callable[["RecordBatch"], bytes]
"""Returns the printed form of all records of a batch."""


class JsonText(bytes):
    """A key or value that was decoded: a JSON document, which stands in JSON lines as it is."""


class Column(NamedTuple):
    """A token with a value for each record of a batch: numbers for `%d`, bytes for `%b`."""

    placeholder: bytes
    of: Callable[["RecordBatch"], Iterable[object]]


Constant = Callable[["RecordBatch"], bytes]
"""A token with one value for all records of a batch."""
Part = bytes | Constant | Column
"""A part of a format; bytes and constants are escaped for Python's %-format."""

TOKENS: Final = {
    "%t": "topic",
    "%p": "partition",
    "%o": "offset",
    "%T": "timestamp in milliseconds since 1970, -1 for none",
    "%d": "timestamp as a date, such as 2013-01-01T05:15:00.000Z, - for none",
    "%k": "key, as --key-as says; empty for null, or NULL with --null",
    "%v": "value, as --value-as says; empty for null, or NULL with --null",
    "%s": "the same as %v",
    "%K": "length of the key in bytes, -1 for null",
    "%V": "length of the value in bytes, -1 for null",
    "%S": "the same as %V",
    "%R": "length of the value as 4 bytes, big endian, -1 for null",
    "%h": "headers, as name=value,name=value",
    "%%": "a percent sign",
}
"""The tokens of a format: those of kcat, and %v, %V, %d."""
ESCAPES: Final = {
    "\\n": "line feed",
    "\\t": "tab",
    "\\r": "carriage return",
    "\\0": "zero byte",
    "\\a": "bell",
    "\\e": "escape, which begins a terminal's colours",
    "\\\\": "backslash",
    "\\xHH": "the byte with this hexadecimal number",
}
STARTS: Final = {
    "beginning": "the oldest record; the default. `earliest` is the same",
    "end": "only records that are still to come. `latest` is the same",
    "stored": "where the group of --group has committed, else the beginning",
    "N": "this offset, in every partition",
    "-N": "the last N records of every partition",
    "s@TIME": "the first record at or after a time",
    "e@TIME": "end at the first record at or after a time; beside one of the others",
}
"""The values of `--offset`."""


def _explained(meanings: Mapping[str, str]) -> str:
    return "".join(f"  {name:<10} {meaning}\n" for name, meaning in meanings.items())


FORMAT_NOTES: Final = (
    f"tokens of --format:\n{_explained(TOKENS)}\nescapes of --format:\n{_explained(ESCAPES)}"
    f"\nwhere --offset begins and ends:\n{_explained(STARTS)}"
    "\nTIME is milliseconds, 2013-01-01T05:15:00Z, 2013-01-01, now, or -1h (s, m, h, d, w).\n"
)
"""The notes of `barnabas consume --help`."""

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\", "e": b"\x1b", "a": b"\a"}

ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "raw": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "repr": lambda data: repr(data)[2:-1].encode(),
}


def unescape(text: str) -> bytes:
    """Returns the bytes of a text with backslash escapes. Raises UsageError for an unknown escape."""
    out = bytearray()
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\":
            out += character.encode("utf-8", "surrogateescape")
            position += 1
            continue
        escape = text[position + 1 : position + 2]
        if escape == "x":
            digits = text[position + 2 : position + 4]
            try:
                out.append(int(digits, 16) if len(digits) == 2 else -1)
            except ValueError:
                raise UsageError(f"format {text!r}: \\x needs two hexadecimal digits, such as \\x00") from None
            position += 4
        elif escape in _ESCAPES:
            out += _ESCAPES[escape]
            position += 2
        else:
            raise UsageError(f"format {text!r}: \\{escape} is no escape; use \\n \\t \\r \\0 \\\\ or \\xHH")
    return bytes(out)


def compile_format(text: str, *, encode_key: str = "raw", encode_value: str = "raw", null: bytes = b"") -> Renderer:
    """Returns the function that renders records. Raises UsageError for unknown tokens and escapes.

    A whole batch is one %-format with the columns' contents as its arguments, so that for the common tokens no Python
    code runs for each record.
    """
    tokens: dict[str, Part] = {
        "t": lambda batch: _escaped(batch.topic.encode()),
        "p": lambda batch: b"%d" % batch.partition,
        "o": Column(b"%d", lambda batch: batch.offsets()),
        "T": Column(b"%d", lambda batch: batch.timestamps()),
        "d": Column(b"%b", lambda batch: (time_text(each).encode() for each in batch.timestamps())),
        "k": Column(b"%b", lambda batch: _encoded(batch.keys(), encode_key, null)),
        "v": Column(b"%b", lambda batch: _encoded(batch.values(), encode_value, null)),
        "K": Column(b"%d", lambda batch: map(_length, batch.keys())),
        "V": Column(b"%d", lambda batch: map(_length, batch.values())),
        "R": Column(b"%b", lambda batch: (_length(value).to_bytes(4, "big", signed=True) for value in batch.values())),
        "h": Column(b"%b", lambda batch: map(_headers, batch.headers())),
    }
    tokens["s"], tokens["S"] = tokens["v"], tokens["V"]
    parts = _parts(text, tokens)

    def render(batch: "RecordBatch") -> bytes:
        one = b"".join([_template(part, batch) for part in parts])
        columns = [part.of(batch) for part in parts if isinstance(part, Column)]
        return one * len(batch) % tuple(chain.from_iterable(zip(*columns, strict=True)))

    return render


def _template(part: Part, batch: "RecordBatch") -> bytes:
    if isinstance(part, bytes):
        return part
    return part.placeholder if isinstance(part, Column) else part(batch)


def _escaped(literal: bytes) -> bytes:
    return literal.replace(b"%", b"%%")


def _parts(text: str, tokens: dict[str, Part]) -> list[Part]:
    """Splits a format into constant bytes and tokens."""
    parts: list[Part] = []
    position = 0
    while position < len(text):
        percent = text.find("%", position)
        if percent < 0:
            percent = len(text)
        parts.append(_escaped(unescape(text[position:percent])))
        letter = text[percent + 1 : percent + 2]
        if letter == "%":
            parts.append(b"%%")
        elif letter in tokens:
            parts.append(tokens[letter])
        elif percent < len(text):
            known = " ".join(f"%{name}" for name in tokens)
            raise UsageError(f"format {text!r}: %{letter} does not exist; use {known} or %%")
        position = percent + 2
    return parts


def _encoded(fields: list[bytes | None], encoding: str, null: bytes) -> Iterable[bytes | None]:
    if encoding == "raw":
        return fields if all(fields) else [null if field is None else field for field in fields]
    encode = ENCODINGS[encoding]
    return [null if field is None else encode(field) for field in fields]


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


def json_lines(batch: "RecordBatch") -> bytes:
    """Returns a JSON object for each record, one a line: topic, partition, offset, timestamp, key, value, headers.

    Bytes that are not UTF-8 stand as base64 under `key_base64`, `value_base64`. Headers are [name, value] pairs,
    [name, {"base64": ...}] for such bytes: names may repeat.
    """
    from json import JSONEncoder

    text = JSONEncoder(ensure_ascii=False).encode
    place = f'{{"topic": {text(batch.topic)}, "partition": {batch.partition}, "offset": '
    lines = [
        f'{place}{record.offset}, "timestamp": {record.timestamp},'
        f" {_json_field(text, 'key', record.key)}, {_json_field(text, 'value', record.value)},"
        f' "headers": {_json_headers(text, record.headers) if record.headers else "[]"}}}\n'
        for record in batch
    ]
    return "".join(lines).encode()


def _json_field(text: Callable[[object], str], name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}": null'
    if isinstance(data, JsonText):
        return f'"{name}": {data.decode()}'
    try:
        return f'"{name}": {text(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{base64.b64encode(data).decode()}"'


def _json_headers(text: Callable[[object], str], headers: Headers) -> str:
    return text([[name, text_or_base64(value)] for name, value in headers])


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Returns UTF-8 as a text, and other bytes as `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
