"""Decodes JSON values: a whole batch at once by Arrow's parser in C++, and rejected values one by one.

Arrow gets the values joined by newlines. If each value begins with `{` and ends with `}`, no document can extend into
the next value: after `}` a `{` is legal only at the end of a document, and a newline is never legal within a text. So
if Arrow returns as many rows as there are values, row n is the document of value n. Otherwise the rejected value is
found by Arrow's message or by halving, and `json_readers` decide about it.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from barnabas.errors import UsageError
from barnabas.spark.formats import json_readers
from barnabas.spark.formats.shapes import Shape, build_array, leaf, list_shape, struct_shape
from barnabas.spark.formats.times import time_zone

__all__ = ["JsonDecoder"]

_PORTION: Final = 2048
"""The number of values in a second attempt after Arrow has rejected one, so that further rejections cost little."""
_HALVED_MIN: Final = 32
"""The least number of values that are halved; fewer are decoded one by one."""
_FAILURES_MAX: Final = 24
"""The number of failed attempts by Arrow after which the remaining values are decoded one by one. Every
`_ROWS_PER_FAILURE` rows that Arrow decodes allow one more."""
_ROWS_PER_FAILURE: Final = 32
_ROW: Final = re.compile(r" in row (\d+)$")
"""The number of the rejected row in Arrow's message, which has it for syntax errors, but not for numbers."""
_BLANKS: Final = " \t\r\n"


class _TypeReader(NamedTuple):
    """The shape of a type for Arrow's parser, and its reader for single documents."""

    shape: Shape
    read: json_readers.Read
    arrow_can_parse: bool = True


class JsonDecoder:
    """Decodes values to structs of one type. Times without a zone are in `zone`."""

    def __init__(self, target: Any, zone: str = "UTC") -> None:
        """Raises UsageError for types that JSON has no values for."""
        if not pa.types.is_struct(target) or not target.num_fields:
            raise UsageError("a schema for JSON is a struct with one field at least, such as `id bigint, name string`")
        time_zone(zone)
        reader = _type_reader(target, zone, "value")
        self._target = target
        self._read = reader.read
        self._single_shape = leaf(target)
        self._arrow_can_parse = reader.arrow_can_parse
        self._shape = reader.shape
        self._fields = [reader.shape.decoded.field(index) for index in range(target.num_fields)]
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(self._fields), unexpected_field_behavior="ignore"
        )

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        """Returns the structs of a binary array without nulls. Values that cannot be decoded are null, with a reason in
        `failures`."""
        failures_left = _FAILURES_MAX if self._arrow_can_parse else 0
        pieces: list[Any] = []
        ranges = [(0, len(values))]
        while ranges:
            start, end = ranges.pop()
            portion = values.slice(start, end - start)
            if failures_left <= 0 or end - start <= 1:
                pieces.append(self.one_by_one(portion, failures, start))
                continue
            result = self._decode_with_arrow(portion)
            if not isinstance(result, int):
                pieces.append(result)
                failures_left = min(failures_left + (end - start) // _ROWS_PER_FAILURE, _FAILURES_MAX)
                continue
            failures_left -= 1
            if end - start > _PORTION:
                ranges += [(at, min(at + _PORTION, end)) for at in range(start, end, _PORTION)][::-1]
            elif result >= 0:
                at = start + result
                ranges += [each for each in ((at + 1, end), (at, at + 1), (start, at)) if each[0] < each[1]]
            elif end - start > _HALVED_MIN:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
            else:
                pieces.append(self.one_by_one(portion, failures, start))
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    # --- all at once ------------------------------------------------------------------------------------------------

    def _decode_with_arrow(self, values: Any) -> Any:
        """Returns the structs of all values; or the number of a value that Arrow rejects, -1 if it is unknown."""
        try:
            texts = values.cast(pa.string())  # checks for UTF-8, which the parser does not
            rejected = _first_non_object(texts)
            if rejected >= 0:
                texts = pc.ascii_trim(texts, characters=_BLANKS)
                rejected = _first_non_object(texts)
            if rejected >= 0:
                return rejected
            document = _joined(texts)
            table = pyarrow.json.read_json(
                pa.BufferReader(document),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(document) + 64),
                parse_options=self._options,
            )
            if table.num_rows != len(values):
                return -1
            columns = [table.column(index).combine_chunks() for index in range(len(self._fields))]
            return self._shape.convert(pa.StructArray.from_arrays(columns, fields=self._fields))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            row = _ROW.search(str(error))
            return int(row[1]) if row and int(row[1]) < len(values) else -1

    # --- one by one -------------------------------------------------------------------------------------------------

    def one_by_one(self, values: Any, failures: dict[int, str], first: int = 0) -> Any:
        """Decodes like `decode`, but without Arrow's parser. The first value has the number `first`."""
        decoded: list[Any] = []
        for index, value in enumerate(values.to_pylist(), first):
            try:
                document = json_readers.parse_document(value)
                decoded.append(None if document is None else self._read(document))
            except ValueError as error:
                decoded.append(None)
                failures[index] = str(error)
        return build_array(self._single_shape, decoded, failures, first)


def _first_non_object(texts: Any) -> int:
    """Returns the number of the first text that cannot be an object; -1 if there is none."""
    return int(pc.index(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")), False).as_py())


def _joined(texts: Any) -> Any:
    lines = pc.binary_join_element_wise(texts, "", "\n")
    offsets = memoryview(lines.buffers()[1]).cast("i")[lines.offset : lines.offset + len(lines) + 1]
    return lines.buffers()[2].slice(offsets[0], offsets[-1] - offsets[0])


# --- types ------------------------------------------------------------------------------------------------------------


def _type_reader(target: Any, zone: str, path: str) -> _TypeReader:
    """Raises UsageError for types that JSON has no values for."""
    if pa.types.is_struct(target):
        return _struct_reader(target, zone, path)
    if pa.types.is_list(target):
        element = _type_reader(target.value_type, zone, f"{path}[]")
        return _TypeReader(
            list_shape(target, element.shape), json_readers.list_reader(element.read), element.arrow_can_parse
        )
    if pa.types.is_map(target):
        if not pa.types.is_string(target.key_type):
            raise UsageError(f"{path}: the keys of a JSON object are texts; write map<string, ...>")
        item = _type_reader(target.item_type, zone, f"{path}[]")
        return _TypeReader(leaf(target), json_readers.map_reader(item.read), arrow_can_parse=False)
    read = json_readers.scalar_reader(target, zone)
    if read is None:
        raise UsageError(f"{path}: JSON has no values for the type {target}; write string and convert it in the query")
    return _TypeReader(_scalar_shape(target, zone), read, arrow_can_parse=not pa.types.is_binary(target))


def _struct_reader(target: Any, zone: str, path: str) -> _TypeReader:
    fields = [target.field(index) for index in range(target.num_fields)]
    readers = [_type_reader(field.type, zone, f"{path}.{field.name}") for field in fields]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{path}: the field {twice!r} occurs twice")
    return _TypeReader(
        struct_shape(target, [reader.shape for reader in readers]),
        json_readers.struct_reader({name: reader.read for name, reader in zip(names, readers)}),
        bool(readers) and all(reader.arrow_can_parse for reader in readers),
    )


def _scalar_shape(target: Any, zone: str) -> Shape:
    """Returns a shape that Arrow's parser can decode: it parses times in UTC, but neither dates nor other times, and
    rounds floats otherwise than Python."""
    if pa.types.is_date(target):
        return leaf(target, pa.string(), _cast_to(target))
    if pa.types.is_float32(target):
        return leaf(target, pa.float64(), _cast_to(target))
    if not pa.types.is_timestamp(target) or (target.tz is not None and zone == "UTC"):
        return leaf(target)
    if target.tz is None:
        return leaf(target, pa.string(), _cast_to(target))
    return leaf(target, pa.string(), lambda texts: _zoned(texts, target, zone))


def _cast_to(target: Any) -> Callable[[Any], Any]:
    return lambda array: array.cast(target, safe=not pa.types.is_floating(target))


def _zoned(texts: Any, target: Any, zone: str) -> Any:
    """Converts texts to times, which all have a zone or all have none. Raises ArrowInvalid otherwise."""
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        local = texts.cast(pa.timestamp("us"))
        return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="raise").cast(target)
