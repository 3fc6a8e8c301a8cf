"""Checks and converts the arguments of calls, for all clients.

A reader takes an argument's name and value, and returns the value in the form that the clients work with. It raises
UsageError, whose text shows the value, says what it must be, and how to write that.
"""

import math
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Real
from typing import Any, Final, TypeVar

from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import UsageError
from barnabas.metadata.topic_names import MAX_NAME_LENGTH
from barnabas.types import TopicPartition

__all__ = [
    "INT16_MAX",
    "INT32_MAX",
    "INT64_MAX",
    "Reader",
    "by_partition",
    "callback",
    "each_once",
    "flag",
    "group",
    "instance",
    "mapping",
    "names",
    "number",
    "numbers",
    "offset",
    "partition",
    "partitions",
    "refused",
    "seconds",
    "seconds_or_none",
    "sendable",
    "several",
    "text",
    "time_ms",
    "topic_name",
    "topic_names",
    "whole",
]

T = TypeVar("T")
Reader = Callable[[str, Any], T]

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def refused(what: str, given: object, rule: str) -> UsageError:
    return UsageError(f"{what}={reprlib.repr(given)} will not do: {rule}")


# --- one thing --------------------------------------------------------------------------------------------------------


def text(what: str, given: object) -> str:
    if not isinstance(given, str) or not given:
        raise refused(what, given, 'give a name as str, such as "orders"')
    return sendable(what, given)


def sendable(what: str, given: str) -> str:
    """Returns a text that a request can have as it is."""
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise refused(
            what, given, "it has half a character (a lone surrogate), and only whole ones can be sent"
        ) from None
    if size > INT16_MAX:
        raise refused(what, given, f"it has {size:,} bytes, and a text of a request at most {INT16_MAX:,}")
    return given


def topic_name(what: str, given: object) -> str:
    """Returns the name of one topic. A leading `^` is refused with a hint, because subscriptions take it."""
    name = text(what, given)
    if name.startswith("^"):
        raise refused(
            what,
            given,
            "regular expressions are for Consumer(...) and subscribe; give the name of one topic here",
        )
    if len(name) > MAX_NAME_LENGTH:
        raise refused(
            what, given, f"it has {len(name):,} characters, and the name of a topic at most {MAX_NAME_LENGTH}"
        )
    return name


def group(what: str, given: object) -> str:
    """Returns the name of a group, which may be empty: old consumers used that."""
    if not isinstance(given, str):
        raise refused(what, given, 'give the name of a group as str, such as "billing"')
    return sendable(what, given)


def flag(what: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise refused(what, given, "give True or False")
    return given


def whole(what: str, given: Any, least: int, most: int, rule: str = "") -> int:
    """Returns a whole number, which may be one of numpy's."""
    try:
        found = operator.index(given)
    except TypeError:
        found = least - 1
    if isinstance(given, bool) or not least <= found <= most:
        raise refused(what, given, rule or f"give a whole number from {least} to {most}")
    return found


def number(least: int, most: int = INT32_MAX, rule: str = "") -> Reader[int]:
    return partial(whole, least=least, most=most, rule=rule)


time_ms: Final = number(0, INT64_MAX, "give milliseconds since 1970 as a whole number, such as int(time.time() * 1000)")


def seconds(what: str, given: Any) -> float:
    """Returns a real number, which may be one of numpy's."""
    if isinstance(given, bool) or not isinstance(given, Real) or math.isnan(given) or given < 0:
        raise refused(what, given, "give seconds from 0 on, such as 2.5")
    return float(given)


def seconds_or_none(what: str, given: object) -> float | None:
    return None if given is None else seconds(what, given)


def callback(what: str, given: Any) -> Any:
    if given is not None and not callable(given):
        raise refused(what, given, "give a function, or None")
    return given


def partition(what: str, given: object) -> TopicPartition:
    match given:
        case (str(name), index) if name and not isinstance(index, bool | str):
            return TopicPartition(
                topic_name(what, name), whole(what, index, 0, INT32_MAX, "partitions are numbered from 0 on")
            )
    raise refused(what, given, 'give a partition as (topic, number), such as ("orders", 0)')


def offset(what: str, given: object) -> OffsetAndMetadata:
    """Returns the next offset to read, given with or without metadata."""
    rule = "give the next offset to read, a number from 0 on, or an OffsetAndMetadata"
    found = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(whole(what, given, 0, INT64_MAX, rule))
    if not isinstance(found.metadata, str):
        raise refused(what, given, "metadata is a str")
    return OffsetAndMetadata(
        whole(what, found.offset, 0, INT64_MAX, rule),
        found.metadata,
        whole(f"{what}.leader_epoch", found.leader_epoch, -1, INT32_MAX),
    )


def instance(kind: type[T], example: str) -> Reader[T]:
    def read(what: str, given: object) -> T:
        if not isinstance(given, kind):
            raise refused(what, given, f"give a {kind.__name__}, such as {example}")
        return given

    return read


# --- several ----------------------------------------------------------------------------------------------------------


def several(one: Reader[T], kind: str) -> Reader[list[T]]:
    """Makes the reader of a list from the reader of an item."""

    def read(what: str, given: Any) -> list[T]:
        if isinstance(given, str | bytes | bytearray | TopicPartition) or not isinstance(given, Iterable):
            raise refused(what, given, f"give a list of {kind}")
        return [one(f"{what}[{index}]", item) for index, item in enumerate(given)]

    return read


def each_once(reader: Reader[list[T]]) -> Reader[list[T]]:
    return lambda what, given: list(dict.fromkeys(reader(what, given)))


partitions: Final = each_once(several(partition, 'partitions, such as [("orders", 0)]'))
numbers: Final = several(number(0, INT64_MAX), "numbers, such as [1, 2]")


def _one_or_several(one: Reader[str]) -> Reader[list[str]]:
    """Makes the reader of one name or several, without duplicates. A `str` is one name, not its letters."""
    some = each_once(several(one, 'names, such as ["orders"]'))
    return lambda what, given: [one(what, given)] if isinstance(given, str) else some(what, given)


names: Final = _one_or_several(text)
topic_names: Final = _one_or_several(topic_name)


def mapping(key: Reader[Any], value: Reader[T], example: str) -> Reader[dict[Any, T]]:
    def read(what: str, given: object) -> dict[Any, T]:
        if not isinstance(given, Mapping):
            raise refused(what, given, f"give a dict, such as {example}")
        return {key(f"a key of {what}", k): value(f"{what}[{k!r}]", v) for k, v in given.items()}

    return read


def by_partition(value: Reader[T], example: str) -> Reader[dict[TopicPartition, T]]:
    return mapping(partition, value, f'{{("orders", 0): {example}}}')
