"""kcat's format strings: `%k %v\\n` and friends, compiled once, applied to every record.

    %t topic      %k key            %v, %s value         %h headers, name=value,...
    %p partition  %K key length     %V, %S value length  %R value length, 4 bytes big endian
    %o offset     %T timestamp, ms  %d timestamp, ISO    %% a percent sign

Lengths of what is null are -1. Escapes: \\n \\t \\r \\0 \\\\ \\xHH. Source: kcat's manual; %v, %V and %d are ours.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from barnabas.errors import UsageError
from barnabas.records.record import Headers

__all__ = ["ENCODINGS", "Renderer", "compile_format", "record_as_dict", "text_or_base64", "unescape"]

Renderer = Callable[[str, int, Any], bytes]
"""Of topic, partition and record: a ConsumerRecord, or a Record out of a file."""
Part = bytes | Renderer

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\", "e": b"\x1b", "a": b"\a"}

ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "raw": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "repr": lambda data: repr(data)[2:-1].encode(),
}


def unescape(text: str) -> bytes:
    """Backslash escapes to bytes. Raises UsageError for one that does not exist."""
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
    """The function that renders records. Raises UsageError for tokens and escapes that do not exist."""
    key, value = ENCODINGS[encode_key], ENCODINGS[encode_value]
    tokens: dict[str, Renderer] = {
        "t": lambda topic, partition, record: topic.encode(),
        "p": lambda topic, partition, record: b"%d" % partition,
        "o": lambda topic, partition, record: b"%d" % record.offset,
        "T": lambda topic, partition, record: b"%d" % record.timestamp,
        "d": lambda topic, partition, record: _iso(record.timestamp),
        "k": lambda topic, partition, record: null if record.key is None else key(record.key),
        "v": lambda topic, partition, record: null if record.value is None else value(record.value),
        "K": lambda topic, partition, record: b"%d" % _length(record.key),
        "V": lambda topic, partition, record: b"%d" % _length(record.value),
        "R": lambda topic, partition, record: _length(record.value).to_bytes(4, "big", signed=True),
        "h": lambda topic, partition, record: _headers(record.headers),
    }
    tokens["s"], tokens["S"] = tokens["v"], tokens["V"]
    parts = _parts(text, tokens)
    return _joined(parts)


def _parts(text: str, tokens: dict[str, Renderer]) -> list[Part]:
    parts: list[Part] = []
    position = 0
    while position < len(text):
        percent = text.find("%", position)
        if percent < 0:
            percent = len(text)
        parts.append(unescape(text[position:percent]))
        letter = text[percent + 1 : percent + 2]
        if letter == "%":
            parts.append(b"%")
        elif letter in tokens:
            parts.append(tokens[letter])
        elif percent < len(text):
            known = " ".join(f"%{name}" for name in tokens)
            raise UsageError(f"format {text!r}: %{letter} does not exist; use {known} or %%")
        position = percent + 2
    return parts


def _joined(parts: list[Part]) -> Renderer:
    kept = [part for part in parts if part != b""]

    def render(topic: str, partition: int, record: Any) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(topic, partition, record) for part in kept])

    return render


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


def _iso(timestamp: int) -> bytes:
    from barnabas.cli.output import time_text

    return time_text(timestamp).encode()


def record_as_dict(topic: str, partition: int, record: Any) -> dict[str, object]:
    """A record for JSON; bytes that are not UTF-8 stand as base64 under `key_base64`, `value_base64`.

    Headers are [name, value] pairs, [name, {"base64": ...}] for such bytes: names may repeat.
    """
    found: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    found.update(_field("key", record.key))
    found.update(_field("value", record.value))
    found["headers"] = [[name, text_or_base64(value)] for name, value in record.headers]
    return found


def _field(name: str, data: bytes | None) -> dict[str, object]:
    text = text_or_base64(data)
    return {f"{name}_base64": text["base64"]} if isinstance(text, dict) else {name: text}


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as a text, other bytes as `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
