"""Reads single JSON documents by the rules of Spark's from_json.

`json_values` uses these readers for documents that Arrow's parser rejects. Numbers stay texts until a reader converts
them to its type.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from decimal import Context as DecimalContext
from typing import Any, Final

from barnabas.spark.formats.times import parse_date, parse_local_timestamp, parse_timestamp

__all__ = ["Number", "Read", "list_reader", "map_reader", "parse_document", "scalar_reader", "struct_reader"]

Read = Callable[[Any], Any]
"""Converts a value of a document to an object for Arrow. Raises ValueError."""

_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NOT_NUMBERS: Final = {
    **dict.fromkeys(("NaN",), float("nan")),
    **dict.fromkeys(("INF", "+INF", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
_SHOWN: Final = 40


class Number(str):
    """The text of a number."""

    __slots__ = ()


def parse_document(data: bytes) -> Any:
    """Returns the parsed document. Raises ValueError."""
    try:
        return json.loads(data.decode(), parse_float=Number, parse_int=Number, parse_constant=Number)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("not JSON: too deep") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}" if data else "empty") from None


def struct_reader(fields: Mapping[str, Read]) -> Read:
    """Returns a reader of objects. Missing fields become null, others are left out."""

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        return {
            name: _read_field(name, each, value[name]) for name, each in fields.items() if value.get(name) is not None
        }

    return read


def list_reader(element: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _wrong("an array", value)
        return [None if each is None else element(each) for each in value]

    return read


def map_reader(item: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        return [(_valid_text(key), None if each is None else item(each)) for key, each in value.items()]

    return read


def _read_field(name: str, read: Read, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _wrong(expected: str, value: Any) -> ValueError:
    if isinstance(value, Number):
        return ValueError(f"{value[:_SHOWN]} where {expected} is expected")
    if isinstance(value, str):
        return ValueError(f"{value[:_SHOWN]!r} where {expected} is expected")
    kind = {dict: "an object", list: "an array", bool: "true or false"}.get(type(value), "null")
    return ValueError(f"{kind} where {expected} is expected")


# --- scalars ----------------------------------------------------------------------------------------------------------


def scalar_reader(kind: Any, zone: str) -> Read | None:
    """Returns the reader of an Arrow type; None if JSON has no values for it."""
    name = str(kind)
    if name in _BITS:
        return _integer_reader(_BITS[name])
    if name.startswith("decimal128"):
        return _decimal_reader(kind.precision, kind.scale)
    if name.startswith("timestamp"):
        return _local_time if kind.tz is None else _time_reader(zone)
    return _READERS.get(name)


def _integer_reader(bits: int) -> Read:
    limit = 1 << bits - 1

    def read(value: Any) -> int:
        if not isinstance(value, Number) or not _INTEGER.fullmatch(value):
            raise _wrong("a whole number", value)
        number = int(value) if len(value) <= 20 else limit
        if not -limit <= number < limit:
            raise ValueError(f"{value[:_SHOWN]} does not fit {bits} bits")
        return number

    return read


def _decimal_reader(precision: int, scale: int) -> Read:
    unit = Decimal(1).scaleb(-scale)
    context = DecimalContext(prec=precision, rounding=ROUND_HALF_UP)

    def read(value: Any) -> Decimal:
        if not isinstance(value, str):
            raise _wrong("a number", value)
        try:
            number = Decimal(value).quantize(unit, context=context)
        except (InvalidOperation, ValueError):
            raise ValueError(f"{value[:_SHOWN]} does not fit decimal({precision},{scale})") from None
        if not number.is_finite():
            raise _wrong("a number", value)
        return number

    return read


def _float(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    if not isinstance(value, Number):
        raise _wrong("a number", value)
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _string(value: Any) -> str:
    """Returns a text as it is, a number as it was written, other values as JSON."""
    return _valid_text(str(value) if isinstance(value, str) else _json_of(value))


def _valid_text(text: str) -> str:
    """Returns the text. Raises ValueError if it has a lone surrogate, which is half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a character (a lone surrogate)") from None
    return text


def _json_of(value: Any) -> str:
    """Returns a parsed value as JSON. Does not recurse, since deep nesting would exhaust Python's stack."""
    parts: list[str] = []
    pending: list[Any] = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, _Text):
            parts.append(each)
        elif isinstance(each, Number):
            parts.append(str(each))
        elif isinstance(each, dict):
            pending.append(_Text("}"))
            for index, (name, value) in reversed(list(enumerate(each.items()))):
                pending += [value, _Text(f"{',' if index else ''}{json.dumps(name, ensure_ascii=False)}:")]
            parts.append("{")
        elif isinstance(each, list):
            pending.append(_Text("]"))
            for index, value in reversed(list(enumerate(each))):
                pending += [value, _Text("," if index else "")]
            parts.append("[")
        else:
            parts.append(json.dumps(each, ensure_ascii=False))
    return "".join(parts)


class _Text(str):
    """A piece of finished JSON: punctuation, or the name of an object's member."""

    __slots__ = ()


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, Number):
        raise _wrong("a text in base64", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{value[:_SHOWN]!r} is not base64") from None


def _date(value: Any) -> int:
    if not isinstance(value, str) or isinstance(value, Number):
        raise _wrong("a date", value)
    return parse_date(value)


def _local_time(value: Any) -> int:
    if not isinstance(value, str) or isinstance(value, Number):
        raise _wrong("a time", value)
    return _within_64_bits(parse_local_timestamp(value))


def _time_reader(zone: str) -> Read:
    seconds = _integer_reader(64)

    def read(value: Any) -> int:
        if isinstance(value, Number):
            return _within_64_bits(int(seconds(value)) * 1_000_000)
        if not isinstance(value, str):
            raise _wrong("a time", value)
        return _within_64_bits(parse_timestamp(value, zone))

    return read


def _within_64_bits(micros: int) -> int:
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError("a time beyond what 64 bits of microseconds hold")
    return micros


_READERS: Final[Mapping[str, Read]] = {
    "bool": _boolean,
    "float": _float,
    "double": _float,
    "string": _string,
    "binary": _binary,
    "date32[day]": _date,
}
