"""One JSON document at a time, by the rules of Spark's from_json: what the quick way through Arrow refuses.

Numbers stay as they were written until it is known what they are wanted for.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from decimal import Context as DecimalContext
from typing import Any, Final

from barnabas.spark.formats.times import day_of, local_micros, micros_of

__all__ = ["Number", "Read", "document_of", "list_reader", "map_reader", "scalar_reader", "struct_reader"]

Read = Callable[[Any], Any]
"""From what a document has to what Arrow takes. Raises ValueError."""

_INTEGER: Final = re.compile(r"-?\d+", re.ASCII)
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NOT_NUMBERS: Final = {
    **dict.fromkeys(("NaN",), float("nan")),
    **dict.fromkeys(("INF", "+INF", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
_SHOWN: Final = 40


class Number(str):
    """A number's text."""

    __slots__ = ()


def document_of(data: bytes) -> Any:
    """What the bytes say. Raises ValueError."""
    try:
        return json.loads(data.decode(), parse_float=Number, parse_int=Number, parse_constant=Number)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("not JSON: too deep") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}" if data else "empty") from None


def struct_reader(fields: Mapping[str, Read]) -> Read:
    """Of an object; what is not in it is null, what is not wanted of it is left out."""

    def read(found: Any) -> Any:
        if not isinstance(found, dict):
            raise _wrong("an object", found)
        return {name: _within(name, each, found[name]) for name, each in fields.items() if found.get(name) is not None}

    return read


def list_reader(element: Read) -> Read:
    def read(found: Any) -> Any:
        if not isinstance(found, list):
            raise _wrong("an array", found)
        return [None if each is None else element(each) for each in found]

    return read


def map_reader(item: Read) -> Read:
    def read(found: Any) -> Any:
        if not isinstance(found, dict):
            raise _wrong("an object", found)
        return [(_whole(key), None if each is None else item(each)) for key, each in found.items()]

    return read


def _within(name: str, read: Read, found: Any) -> Any:
    try:
        return read(found)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _wrong(wanted: str, found: Any) -> ValueError:
    if isinstance(found, Number):
        return ValueError(f"{found[:_SHOWN]} where {wanted} is wanted")
    if isinstance(found, str):
        return ValueError(f"{found[:_SHOWN]!r} where {wanted} is wanted")
    kind = {dict: "an object", list: "an array", bool: "true or false"}.get(type(found), "null")
    return ValueError(f"{kind} where {wanted} is wanted")


# --- scalars ----------------------------------------------------------------------------------------------------------


def scalar_reader(kind: Any, zone: str) -> Read | None:
    """For an Arrow type; None if JSON has nothing for it."""
    name = str(kind)
    if name in _BITS:
        return _integer_reader(_BITS[name])
    if name.startswith("decimal128"):
        return _decimal_reader(kind.precision, kind.scale)
    if name.startswith("timestamp"):
        return local_time if kind.tz is None else _time_reader(zone)
    return _READERS.get(name)


def _integer_reader(bits: int) -> Read:
    limit = 1 << bits - 1

    def read(found: Any) -> int:
        if not isinstance(found, Number) or not _INTEGER.fullmatch(found):
            raise _wrong("a whole number", found)
        number = int(found) if len(found) <= 20 else limit
        if not -limit <= number < limit:
            raise ValueError(f"{found[:_SHOWN]} does not fit {bits} bits")
        return number

    return read


def _decimal_reader(precision: int, scale: int) -> Read:
    unit = Decimal(1).scaleb(-scale)
    context = DecimalContext(prec=precision, rounding=ROUND_HALF_UP)

    def read(found: Any) -> Decimal:
        if not isinstance(found, str):
            raise _wrong("a number", found)
        try:
            number = Decimal(found).quantize(unit, context=context)
        except (InvalidOperation, ValueError):
            raise ValueError(f"{found[:_SHOWN]} does not fit decimal({precision},{scale})") from None
        if not number.is_finite():
            raise _wrong("a number", found)
        return number

    return read


def _float(found: Any) -> float:
    if isinstance(found, str) and found in _NOT_NUMBERS:
        return _NOT_NUMBERS[found]
    if not isinstance(found, Number):
        raise _wrong("a number", found)
    return float(found)


def _boolean(found: Any) -> bool:
    if not isinstance(found, bool):
        raise _wrong("true or false", found)
    return found


def _string(found: Any) -> str:
    """What is no text becomes one: a number as it was written, objects and arrays as JSON."""
    return _whole(str(found) if isinstance(found, str) else _json_of(found))


def _whole(text: str) -> str:
    """Raises ValueError for half of a character (a lone surrogate), which is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a character (a lone surrogate)") from None
    return text


def _json_of(found: Any) -> str:
    """Returns a parsed value as JSON again. Keeps a stack of its own, so that no depth of nesting exhausts Python's."""
    parts: list[str] = []
    left: list[Any] = [found]
    while left:
        each = left.pop()
        if isinstance(each, _Text):
            parts.append(each)
        elif isinstance(each, Number):
            parts.append(str(each))
        elif isinstance(each, dict):
            left.append(_Text("}"))
            for index, (name, value) in reversed(list(enumerate(each.items()))):
                left += [value, _Text(f"{',' if index else ''}{json.dumps(name, ensure_ascii=False)}:")]
            parts.append("{")
        elif isinstance(each, list):
            left.append(_Text("]"))
            for index, value in reversed(list(enumerate(each))):
                left += [value, _Text("," if index else "")]
            parts.append("[")
        else:
            parts.append(json.dumps(each, ensure_ascii=False))
    return "".join(parts)


class _Text(str):
    """JSON that is written already: punctuation, and the names of an object's members."""

    __slots__ = ()


def _binary(found: Any) -> bytes:
    if not isinstance(found, str) or isinstance(found, Number):
        raise _wrong("a text in base64", found)
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{found[:_SHOWN]!r} is not base64") from None


def _date(found: Any) -> int:
    if not isinstance(found, str) or isinstance(found, Number):
        raise _wrong("a date", found)
    return day_of(found)


def local_time(found: Any) -> int:
    if not isinstance(found, str) or isinstance(found, Number):
        raise _wrong("a time", found)
    return _bounded(local_micros(found))


def _time_reader(zone: str) -> Read:
    seconds = _integer_reader(64)

    def read(found: Any) -> int:
        if isinstance(found, Number):
            return _bounded(int(seconds(found)) * 1_000_000)
        if not isinstance(found, str):
            raise _wrong("a time", found)
        return _bounded(micros_of(found, zone))

    return read


def _bounded(micros: int) -> int:
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
