"""Arrays of a decoder's types as arrays of Spark's. No Spark."""

from datetime import date
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from barnabas.spark.formats.shapes import build_array, leaf, list_shape, map_shape, struct_shape  # noqa: E402

DAY = leaf(pa.date32(), pa.int32(), lambda array: array.cast(pa.date32()))
"""A date that the decoder has as a number of days."""
TEXT = leaf(pa.string())


def nested() -> Any:
    item = pa.struct([("on", pa.date32()), ("name", pa.string())])
    shape = struct_shape(item, [DAY, TEXT])
    days = pa.map_(pa.string(), pa.date32())
    whole = pa.struct([("items", pa.list_(item)), ("days", days)])
    return struct_shape(whole, [list_shape(pa.list_(item), shape), map_shape(days, TEXT, DAY)])


VALUES = [
    {"items": [{"on": 5, "name": "a"}, None], "days": [("x", 6), ("y", None)]},
    None,
    {"items": [], "days": None},
    {"items": None, "days": [("z", 7)]},
]


def numbered(value: Any) -> Any:
    """A value of Spark's with its dates as numbers again."""
    if isinstance(value, dict):
        return {name: numbered(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(numbered(each) for each in value)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def test_dates_within_everything_are_converted() -> None:
    shape = nested()
    failures: dict[int, str] = {}
    found = build_array(shape, VALUES, failures)
    found.validate(full=True)
    assert (found.type, failures) == (shape.target, {})
    assert numbered(found.to_pylist()) == VALUES
    part = shape.convert(pa.array(VALUES, shape.decoded).slice(2))
    part.validate(full=True)
    assert numbered(part.to_pylist()) == VALUES[2:]


def test_what_has_the_right_type_is_not_touched() -> None:
    shape = list_shape(pa.list_(pa.string()), TEXT)
    array = pa.array([["a"]])
    assert shape.conversion is None
    assert shape.convert(array) is array


def test_values_that_do_not_fit_become_null_alone() -> None:
    text = leaf(pa.date32(), pa.string(), lambda array: array.cast(pa.date32()))
    failures: dict[int, str] = {}
    found = build_array(text, ["1970-01-06", "soon", None, 5, "1970-01-10"], failures, first=10)
    assert numbered(found.to_pylist()) == [5, None, None, None, 9]
    assert failures.keys() == {11, 13}
    assert failures[11].startswith("a value does not fit its type: ")
