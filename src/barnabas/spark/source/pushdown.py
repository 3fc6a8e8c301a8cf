"""Narrows the offset ranges of a batch query by its conditions on topic, partition, offset and timestamp.

Conditions on topic, partition and offset are fulfilled by the ranges, so Spark need not check the records. A lower
bound of the timestamp skips the records before the first one at or after it. An upper bound skips nothing, because the
timestamps of a log need not ascend.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from barnabas.spark.source.planning import OffsetRange
from barnabas.types import TopicPartition

__all__ = ["Condition", "TakesConditions", "conditions_of", "first_ms", "narrowed", "pushdown_is_on"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = ("partition", "offset")


class Condition(NamedTuple):
    """A condition on one column: `=`, `in`, `<`, `<=`, `>`, `>=` or `prefix`, and the value."""

    column: str
    test: str
    value: Any


_TESTS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "In": "in",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "StringStartsWith": "prefix",
}
"""Names of Spark's filter classes."""

_MEANING: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda found, value: bool(found == value),
    "in": lambda found, value: found in value,
    "<": lambda found, value: bool(found < value),
    "<=": lambda found, value: bool(found <= value),
    ">": lambda found, value: bool(found > value),
    ">=": lambda found, value: bool(found >= value),
    "prefix": lambda found, value: found.startswith(value),
}


def conditions_of(filters: Iterable[Any]) -> tuple[list[Condition], list[Any]]:
    """Returns the filters that decide what is read, and those that Spark has to apply itself."""
    conditions, rest = [], []
    for each in filters:
        kind = type(each).__name__
        path: tuple[str, ...] = getattr(each, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        if kind == "IsNotNull" and column in ("topic", *_NUMBERS):
            continue  # they never are
        found = Condition(column, _TESTS.get(kind, ""), getattr(each, "value", None))
        if _is_ours(found):
            conditions.append(found)
        if not _is_ours(found) or column == "timestamp":
            rest.append(each)
    return conditions, rest


def _is_ours(condition: Condition) -> bool:
    column, test, value = condition
    if column == "timestamp":
        return test in ("=", ">", ">=") and isinstance(value, datetime) and value.tzinfo is not None
    kind = str if column == "topic" else int
    if column not in ("topic", *_NUMBERS) or test not in _MEANING or (test == "prefix" and column != "topic"):
        return False
    if test == "in":
        return isinstance(value, list | tuple) and all(type(each) is kind for each in value)
    return type(value) is kind


def first_ms(conditions: Iterable[Condition]) -> int | None:
    """Returns the time before which no record is wanted; None without such a condition."""
    times = [(each.value - _EPOCH) // timedelta(milliseconds=1) for each in conditions if each.column == "timestamp"]
    return max(times, default=None)


def narrowed(ranges: Sequence[OffsetRange], conditions: Sequence[Condition]) -> list[OffsetRange]:
    """Returns the parts of the ranges that may have records which meet the conditions."""
    found = [each for each in ranges if _is_wanted(each.partition, conditions)]
    for condition in conditions:
        if condition.column == "offset":
            found = [piece for each in found for piece in _cut(each, condition)]
    return [each for each in found if each.size]


def _is_wanted(partition: TopicPartition, conditions: Iterable[Condition]) -> bool:
    return all(
        _MEANING[test](getattr(partition, column), value)
        for column, test, value in conditions
        if column in ("topic", "partition")
    )


def _cut(whole: OffsetRange, condition: Condition) -> list[OffsetRange]:
    _, test, value = condition
    if test == "in":
        return [_clipped(whole, offset, offset + 1) for offset in sorted(set(value))]
    low = {"=": value, ">": value + 1, ">=": value}.get(test, whole.start)
    high = {"=": value + 1, "<": value, "<=": value + 1}.get(test, whole.end)
    return [_clipped(whole, low, high)]


def _clipped(whole: OffsetRange, low: int, high: int) -> OffsetRange:
    start = min(max(whole.start, low), whole.end)
    return OffsetRange(whole.partition, start, max(start, min(whole.end, high)))


class TakesConditions:
    """A reader's method by which Spark hands over the conditions of the query."""

    _conditions: list[Condition]

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        self._conditions, rest = conditions_of(filters)
        return rest


def pushdown_is_on() -> bool:
    """Returns whether Spark hands over conditions. It refuses readers that take conditions unless its setting is on,
    and it then hands them over in a process of its own."""
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
