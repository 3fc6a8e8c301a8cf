"""JSON values: a whole batch at once by Arrow's parser in C++, and one by one what it refuses.

The values are joined by newlines into one text. Where each of them begins with `{` and ends with `}`, none can run into
the next: behind `}` a `{` is legal only where a document has ended, and a newline never within a text. So as many rows
as values means that each value was one document, and that row n is that of value n. What is refused is found (Arrow
says where, or by halving) and read by `json_reading`, which has the last word.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from barnabas.errors import UsageError
from barnabas.spark.formats import json_reading as reading
from barnabas.spark.formats.shapes import Shape, built, leaf, list_shape, struct_shape
from barnabas.spark.formats.times import time_zone

__all__ = ["JsonDecoder"]

_SOME: Final = 2048
"""Where one is bad, the others are tried again in portions of this size, so that the next bad one costs little."""
_SMALL: Final = 32
"""So many are not halved again."""
_CREDIT: Final = 24
"""Attempts by Arrow may fail so often before all that is left is read one by one; each time that it reads as many rows
as `_ROWS_PER_FAILURE` gives one back."""
_ROWS_PER_FAILURE: Final = 32
_ROW: Final = re.compile(r" in row (\d+)$")
"""Where Arrow says which one is bad, as it does for the grammar and not for numbers."""
_BLANKS: Final = " \t\r\n"


class _Plan(NamedTuple):
    """How one type is read: both ways."""

    shape: Shape
    read: reading.Read
    is_quick: bool = True
    """Whether Arrow's parser can do it."""


class JsonDecoder:
    """Values into structs of one type; `zone`: that of times that say none."""

    def __init__(self, target: Any, zone: str = "UTC") -> None:
        """Raises UsageError for types that JSON has nothing for."""
        if not pa.types.is_struct(target) or not target.num_fields:
            raise UsageError("a schema for JSON is a struct with one field at least, such as `id bigint, name string`")
        time_zone(zone)
        plan = _plan(target, zone, "value")
        self._target = target
        self._read = plan.read
        self._slow = leaf(target)
        self._is_quick = plan.is_quick
        self._finish = plan.shape.finished
        self._fields = [plan.shape.wire.field(index) for index in range(target.num_fields)]
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(self._fields), unexpected_field_behavior="ignore"
        )

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        """The structs of a binary array without nulls. What does not parse is null, and in `failures`."""
        credit = _CREDIT if self._is_quick else 0
        pieces: list[Any] = []
        ranges = [(0, len(values))]
        while ranges:
            start, end = ranges.pop()
            some = values.slice(start, end - start)
            if credit <= 0 or end - start <= 1:
                pieces.append(self.one_by_one(some, failures, start))
                continue
            found = self._quick(some)
            if not isinstance(found, int):
                pieces.append(found)
                credit = min(credit + (end - start) // _ROWS_PER_FAILURE, _CREDIT)
                continue
            credit -= 1
            if end - start > _SOME:
                ranges += [(at, min(at + _SOME, end)) for at in range(start, end, _SOME)][::-1]
            elif found >= 0:
                at = start + found
                ranges += [each for each in ((at + 1, end), (at, at + 1), (start, at)) if each[0] < each[1]]
            elif end - start > _SMALL:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
            else:
                pieces.append(self.one_by_one(some, failures, start))
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    # --- all at once ------------------------------------------------------------------------------------------------

    def _quick(self, values: Any) -> Any:
        """All of them; or the number of one that Arrow refuses, -1 if it does not say which."""
        try:
            texts = values.cast(pa.string())  # looks for what is not UTF-8, which the parser does not
            bad = _no_object(texts)
            if bad >= 0:
                texts = pc.ascii_trim(texts, characters=_BLANKS)
                bad = _no_object(texts)
            if bad >= 0:
                return bad
            document = _joined(texts)
            table = pyarrow.json.read_json(
                pa.BufferReader(document),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(document) + 64),
                parse_options=self._options,
            )
            if table.num_rows != len(values):
                return -1
            columns = [table.column(index).combine_chunks() for index in range(len(self._fields))]
            return self._finish(pa.StructArray.from_arrays(columns, fields=self._fields))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            said = _ROW.search(str(error))
            return int(said[1]) if said and int(said[1]) < len(values) else -1

    # --- one by one -------------------------------------------------------------------------------------------------

    def one_by_one(self, values: Any, failures: dict[int, str], first: int = 0) -> Any:
        """The same as `decode`, slowly."""
        found: list[Any] = []
        for index, value in enumerate(values.to_pylist(), first):
            try:
                document = reading.document_of(value)
                found.append(None if document is None else self._read(document))
            except ValueError as error:
                found.append(None)
                failures[index] = str(error)
        return built(self._slow, found, failures, first)


def _no_object(texts: Any) -> int:
    """The first that cannot be an object, -1 if all can."""
    return int(pc.index(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")), False).as_py())


def _joined(texts: Any) -> Any:
    lines = pc.binary_join_element_wise(texts, "", "\n")
    places = memoryview(lines.buffers()[1]).cast("i")[lines.offset : lines.offset + len(lines) + 1]
    return lines.buffers()[2].slice(places[0], places[-1] - places[0])


# --- types ------------------------------------------------------------------------------------------------------------


def _plan(target: Any, zone: str, path: str) -> _Plan:
    """Raises UsageError."""
    if pa.types.is_struct(target):
        return _struct_plan(target, zone, path)
    if pa.types.is_list(target):
        element = _plan(target.value_type, zone, f"{path}[]")
        return _Plan(list_shape(target, element.shape), reading.list_reader(element.read), element.is_quick)
    if pa.types.is_map(target):
        if not pa.types.is_string(target.key_type):
            raise UsageError(f"{path}: the keys of a JSON object are texts; write map<string, ...>")
        item = _plan(target.item_type, zone, f"{path}[]")
        return _Plan(leaf(target), reading.map_reader(item.read), is_quick=False)
    read = reading.scalar_reader(target, zone)
    if read is None:
        raise UsageError(f"{path}: JSON has nothing for the type {target}; write string and convert it in the query")
    return _Plan(_scalar_shape(target, zone), read, is_quick=not pa.types.is_binary(target))


def _struct_plan(target: Any, zone: str, path: str) -> _Plan:
    fields = [target.field(index) for index in range(target.num_fields)]
    plans = [_plan(field.type, zone, f"{path}.{field.name}") for field in fields]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{path}: the field {twice!r} is there twice")
    return _Plan(
        struct_shape(target, [plan.shape for plan in plans]),
        reading.struct_reader({name: plan.read for name, plan in zip(names, plans)}),
        bool(plans) and all(plan.is_quick for plan in plans),
    )


def _scalar_shape(target: Any, zone: str) -> Shape:
    """What Arrow's parser is asked for. It reads times in UTC itself, dates not, and rounds other than Python does."""
    if pa.types.is_date(target):
        return leaf(target, pa.string(), _cast_to(target))
    if pa.types.is_float32(target):
        return leaf(target, pa.float64(), _cast_to(target))
    if not pa.types.is_timestamp(target) or (target.tz is not None and zone == "UTC"):
        return leaf(target)
    if target.tz is None:
        return leaf(target, pa.string(), _cast_to(target))
    return leaf(target, pa.string(), lambda texts: _placed(texts, target, zone))


def _cast_to(target: Any) -> Callable[[Any], Any]:
    return lambda array: array.cast(target, safe=not pa.types.is_floating(target))


def _placed(texts: Any, target: Any, zone: str) -> Any:
    """Times that all have a zone, or all have none. Raises ArrowInvalid otherwise."""
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        local = texts.cast(pa.timestamp("us"))
        return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="raise").cast(target)
