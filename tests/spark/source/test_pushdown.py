"""Conditions that are kept by not reading. No Spark; its filter classes have these names and attributes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.pushdown import Condition, conditions_of, first_ms, narrowed
from barnabas.types import TopicPartition

RANGES = [OffsetRange(TopicPartition(topic, p), 10, 20) for topic in ("ab", "b") for p in range(3)]


def spark_filter(kind: str, column: str, *value: Any) -> Any:
    found = type(kind, (), {})()
    found.attribute = (column,)
    if value:
        found.value = value[0]
    return found


def holds(condition: Condition, row: tuple[str, int, int]) -> bool:
    found: Any = dict(zip(("topic", "partition", "offset"), row))[condition.column]
    value = condition.value
    return {
        "=": lambda: found == value,
        "in": lambda: found in value,
        "<": lambda: found < value,
        "<=": lambda: found <= value,
        ">": lambda: found > value,
        ">=": lambda: found >= value,
        "prefix": lambda: str(found).startswith(value),
    }[condition.test]()


numbers = st.integers(-3, 25)
conditions = st.one_of(
    st.builds(
        Condition, st.sampled_from(["partition", "offset"]), st.sampled_from(["=", "<", "<=", ">", ">="]), numbers
    ),
    st.builds(Condition, st.sampled_from(["partition", "offset"]), st.just("in"), st.lists(numbers, max_size=4)),
    st.builds(Condition, st.just("topic"), st.sampled_from(["=", "<", ">=", "prefix"]), st.text("ab", max_size=2)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(conditions, max_size=4))
def test_what_is_read_is_what_is_wanted(wanted: list[Condition]) -> None:
    rows = [(*each.partition, offset) for each in RANGES for offset in range(each.start, each.end)]
    read = [(*each.partition, offset) for each in narrowed(RANGES, wanted) for offset in range(each.start, each.end)]
    assert sorted(read) == sorted(row for row in rows if all(holds(each, row) for each in wanted))


def test_what_sparks_filters_mean() -> None:
    filters = [
        spark_filter("EqualTo", "topic", "a"),
        spark_filter("In", "partition", [1, 2]),
        spark_filter("GreaterThan", "offset", 5),
        spark_filter("IsNotNull", "offset"),
        spark_filter("EqualTo", "value", b"x"),
        spark_filter("LessThan", "timestamp", datetime(2025, 1, 1, tzinfo=UTC)),
        spark_filter("IsNull", "key"),
        spark_filter("EqualTo", "offset", None),
        spark_filter("EqualTo", "partition", True),
        spark_filter("Not", "topic"),
    ]
    found, rest = conditions_of(filters)
    assert found == [("topic", "=", "a"), ("partition", "in", [1, 2]), ("offset", ">", 5)]
    assert rest == filters[4:]


def test_times_are_bounds_that_spark_checks_again() -> None:
    since = spark_filter("GreaterThanOrEqual", "timestamp", datetime(1970, 1, 1, 0, 0, 1, 1999, tzinfo=UTC))
    found, rest = conditions_of([since])
    assert rest == [since]
    assert first_ms(found) == 1001
    assert first_ms([]) is None


@pytest.mark.parametrize("value", [datetime(2025, 1, 1), "2025-01-01", 5])  # noqa: DTZ001
def test_a_time_without_a_zone_is_left_to_spark(value: Any) -> None:
    assert conditions_of([spark_filter("EqualTo", "timestamp", value)])[0] == []
