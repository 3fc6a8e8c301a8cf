"""Converts arrays of a decoder's types to arrays of Spark's types.

A decoder may have fewer types than Spark: it may decode a date as a text, or a time as a number. A Shape converts whole
arrays, with the arrays of fields, elements and entries in them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["Shape", "build_array", "leaf", "list_shape", "map_shape", "struct_shape"]

Conversion = Callable[[Any], Any]


class Shape(NamedTuple):
    """A decoder's Arrow type, Spark's Arrow type, and the conversion from one to the other."""

    decoded: Any
    target: Any
    conversion: Conversion | None = None
    """The conversion of an array; None if both types are the same."""

    def convert(self, array: Any) -> Any:
        """Returns an array of the target type. Raises ArrowInvalid for values that do not fit it."""
        return array if self.conversion is None else self.conversion(array)


def leaf(target: Any, decoded: Any = None, conversion: Conversion | None = None) -> Shape:
    """Returns the shape of a type without children."""
    return Shape(target if decoded is None else decoded, target, conversion)


def struct_shape(target: Any, children: Sequence[Shape]) -> Shape:
    """Returns the shape of a struct with these children, in the order of the target's fields."""
    fields = [target.field(index) for index in range(target.num_fields)]
    decoded = pa.struct([pa.field(field.name, child.decoded) for field, child in zip(fields, children)])

    def convert(array: Any) -> Any:
        columns = [child.convert(array.field(index)) for index, child in enumerate(children)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    return Shape(decoded, target, None if decoded == target else convert)


def list_shape(target: Any, element: Shape) -> Shape:
    decoded = pa.list_(element.decoded)

    def convert(array: Any) -> Any:
        return _with_children(array, target, element.convert(array.values))

    return Shape(decoded, target, None if decoded == target else convert)


def map_shape(target: Any, key: Shape, item: Shape) -> Shape:
    decoded = pa.map_(key.decoded, item.decoded)

    def convert(array: Any) -> Any:
        entries = [key.convert(array.keys), item.convert(array.items)]
        pairs = pa.StructArray.from_arrays(entries, fields=[target.key_field, target.item_field])
        return _with_children(array, target, pairs)

    return Shape(decoded, target, None if decoded == target else convert)


def _with_children(array: Any, target: Any, child: Any) -> Any:
    """Returns lists, or maps, with other children. The children and offsets of a slice are those of the whole array."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, offsets], array.null_count, array.offset, [child])


def build_array(shape: Shape, values: Sequence[Any], failures: dict[int, str], first: int = 0) -> Any:
    """Returns an array of Python's objects. An object that does not fit becomes null, and `failures` gets the reason
    under its number, counted from `first`."""
    try:
        return shape.convert(pa.array(values, shape.decoded))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if len(values) == 1:
            failures[first] = f"a value does not fit its type: {error}"
            return pa.nulls(1, shape.target)
    middle = len(values) // 2
    halves = (values[:middle], first), (values[middle:], first + middle)
    return pa.concat_arrays([build_array(shape, half, failures, number) for half, number in halves])
