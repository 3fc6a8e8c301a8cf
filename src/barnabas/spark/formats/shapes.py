"""What a decoder fills, and how that becomes what Spark wants: types as trees.

A decoder may know fewer types than Spark: it gives a date as text, or a time as a number. `wire` is the type that it
fills, `target` the one that is wanted, `finish` the way from one to the other, for whole columns.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["Shape", "array_of", "built", "leaf", "list_shape", "map_shape", "struct_shape"]

Finish = Callable[[Any], Any]


class Shape(NamedTuple):
    """See the module. `finish` is None where both types are the same."""

    wire: Any
    target: Any
    finish: Finish | None = None

    def finished(self, array: Any) -> Any:
        """Raises ArrowInvalid for values that have no place in the target."""
        return array if self.finish is None else self.finish(array)


def leaf(target: Any, wire: Any = None, finish: Finish | None = None) -> Shape:
    """A type without parts."""
    return Shape(target if wire is None else wire, target, finish)


def struct_shape(target: Any, children: Sequence[Shape]) -> Shape:
    """A struct of these, in the order of the target's fields."""
    fields = [target.field(index) for index in range(target.num_fields)]
    wire = pa.struct([pa.field(field.name, child.wire) for field, child in zip(fields, children)])

    def finish(array: Any) -> Any:
        columns = [child.finished(array.field(index)) for index, child in enumerate(children)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    return Shape(wire, target, None if wire == target else finish)


def list_shape(target: Any, element: Shape) -> Shape:
    """A list of these."""
    wire = pa.list_(element.wire)

    def finish(array: Any) -> Any:
        return _with_children(array, target, element.finished(array.values))

    return Shape(wire, target, None if wire == target else finish)


def map_shape(target: Any, key: Shape, item: Shape) -> Shape:
    """A map from these to those."""
    wire = pa.map_(key.wire, item.wire)

    def finish(array: Any) -> Any:
        entries = [key.finished(array.keys), item.finished(array.items)]
        pairs = pa.StructArray.from_arrays(entries, fields=[target.key_field, target.item_field])
        return _with_children(array, target, pairs)

    return Shape(wire, target, None if wire == target else finish)


def _with_children(array: Any, target: Any, child: Any) -> Any:
    """Lists of other values. Those of a slice are the whole array's, as are its places."""
    validity, places = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), [validity, places], array.null_count, array.offset, [child])


def array_of(shape: Shape, values: Sequence[Any]) -> Any:
    """Python's objects as a finished array. Raises ArrowInvalid, OverflowError, TypeError, ValueError."""
    return shape.finished(pa.array(values, shape.wire))


def built(shape: Shape, values: Sequence[Any], failures: dict[int, str], first: int = 0) -> Any:
    """The same where some may not fit: those become null, and are entered into `failures` under their number."""
    try:
        return array_of(shape, values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if len(values) == 1:
            failures[first] = f"a value does not fit its type: {error}"
            return pa.nulls(1, shape.target)
    middle = len(values) // 2
    return pa.concat_arrays(
        [built(shape, values[:middle], failures, first), built(shape, values[middle:], failures, first + middle)]
    )
