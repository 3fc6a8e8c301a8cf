"""Reads the rows that a producer sends in bulk, from lists or from the buffers of Arrow columns; and Kafka's murmur2.

Compiled by mypyc. `check_lists` checks the rows of lists before the first of them is read.
"""

from __future__ import annotations

from typing import Any, Final

from librt.strings import read_i32_le, read_i64_le

from barnabas.records.compiled.mypyc_types import i64
from barnabas.records.record import Headers

__all__ = ["BinaryBuffers", "ColumnRows", "ListRows", "Rows", "check_lists", "header_bytes", "murmur2"]

RECORD_OVERHEAD: Final = 32
"""The most bytes of a record's varints, without headers. Its offset delta fits 32 bits."""
HEADER_OVERHEAD: Final = 10

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Computes Kafka's 32-bit murmur2 as a signed number: -973932308 for b"21". Source: Kafka's Utils.murmur2."""
    length: i64 = len(data)
    h: i64 = (_SEED ^ length) & _MASK
    whole: i64 = length & ~3
    position: i64 = 0
    k: i64
    while position < whole:
        word: i64 = i64(read_i32_le(data, position))
        k = (word & _MASK) * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
        position += 4
    if position < length:
        k = 0
        position = length
        while position > whole:
            position -= 1
            k = k << 8 | data[position]
        h = (h ^ k) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


class Rows:
    """Rows by their index from 0 on. Callers read keys only if `keyed`, timestamps only if `stamped`, partitions only
    if `placed` and headers only if `headed`."""

    def __init__(self, count: i64, base: i64, to: i64, heads: Headers) -> None:
        self.count: i64 = count
        self.base: i64 = base
        """The index of the first row among all rows of the call."""
        self.to: i64 = to
        """The partition of all rows; -1: each row has its own, or the partitioner chooses."""
        self.heads = heads
        """The headers of all rows, unless each row has its own."""
        self.keyed: bool = False
        self.stamped: bool = False
        self.placed: bool = False
        self.headed: bool = False

    def value(self, index: i64) -> bytes | None:
        raise NotImplementedError

    def key(self, index: i64) -> bytes | None:
        raise NotImplementedError

    def timestamp(self, index: i64) -> i64:
        """Returns milliseconds since 1970; -1: the time of the call."""
        raise NotImplementedError

    def partition(self, index: i64) -> i64:
        """Returns the row's partition; -1: the partitioner chooses."""
        raise NotImplementedError

    def headers(self, index: i64) -> Headers:
        raise NotImplementedError


class ListRows(Rows):
    """Rows of lists that `check_lists` has checked."""

    def __init__(
        self,
        values: list[Any],
        keys: list[Any] | None = None,
        timestamps: list[int] | None = None,
        partitions: list[int] | None = None,
        headers: list[Headers] | None = None,
        to: i64 = -1,
        heads: Headers = (),
    ) -> None:
        super().__init__(len(values), 0, to, heads)
        self._values = values
        self._keys: list[Any] = keys if keys is not None else []
        self._timestamps: list[int] = timestamps if timestamps is not None else []
        self._partitions: list[int] = partitions if partitions is not None else []
        self._headers: list[Headers] = headers if headers is not None else []
        self.keyed = keys is not None
        self.stamped = timestamps is not None
        self.placed = partitions is not None
        self.headed = headers is not None

    def value(self, index: i64) -> bytes | None:
        given = self._values[index]
        return given if given is None or isinstance(given, bytes) else bytes(given)

    def key(self, index: i64) -> bytes | None:
        given = self._keys[index]
        return given if given is None or isinstance(given, bytes) else bytes(given)

    def timestamp(self, index: i64) -> i64:
        return self._timestamps[index]

    def partition(self, index: i64) -> i64:
        return self._partitions[index]

    def headers(self, index: i64) -> Headers:
        return self._headers[index]


def _length(given: object, what: str, index: i64) -> i64:
    if given is None:
        return 0
    if isinstance(given, bytes | bytearray):
        return len(given)
    if isinstance(given, memoryview):
        return given.nbytes
    raise TypeError(
        f"{what}s[{index}] is bytes or None, not {type(given).__name__}; encode it, or set {what}_serializer"
    )


def header_bytes(headers: Headers) -> i64:
    """Returns the most bytes that `headers` take in a record."""
    size: i64 = 0
    for header in headers:
        content = header[1]
        size += 4 * len(header[0]) + HEADER_OVERHEAD
        if content is not None:
            size += len(content)
    return size


def check_lists(
    values: list[Any],
    keys: list[Any] | None,
    timestamps: list[Any] | None,
    headers: list[Headers] | None,
    heads: Headers,
    record_max: i64,
) -> None:
    """Raises TypeError or ValueError for the first row that cannot be sent, and OverflowError if it is too large.
    `headers` have been checked already."""
    count: i64 = len(values)
    index: i64 = 0
    fixed: i64 = RECORD_OVERHEAD + header_bytes(heads)
    while index < count:
        given = values[index]
        size: i64 = fixed + (len(given) if isinstance(given, bytes) else _length(given, "value", index))
        if keys is not None:
            given = keys[index]
            size += len(given) if isinstance(given, bytes) else _length(given, "key", index)
        if timestamps is not None:
            stamp = timestamps[index]
            if not isinstance(stamp, int):
                raise TypeError(f"timestamps[{index}] is milliseconds since 1970 as int, not {type(stamp).__name__}")
            if not 0 <= stamp < 1 << 63:
                raise ValueError(f"timestamps[{index}] is {stamp}; give milliseconds since 1970")
        if headers is not None:
            size += header_bytes(headers[index])
        if size > record_max:
            raise OverflowError(f"row {index} makes a record of up to {size} bytes")
        index += 1


class BinaryBuffers:
    """An Arrow column of binary or string type with 32-bit offsets, its buffers as bytes."""

    __slots__ = ("_base", "_bit", "_data", "_offsets", "_validity")

    def __init__(self, offsets: bytes, data: bytes, validity: bytes | None, bit: i64) -> None:
        """Takes `data` from the first offset's position on. `bit` is the first value's bit in the validity bitmap."""
        self._offsets = offsets
        self._data = data
        self._base: i64 = i64(read_i32_le(offsets, 0))
        self._validity = validity
        self._bit = bit

    def get(self, index: i64) -> bytes | None:
        validity = self._validity
        if validity is not None:
            bit: i64 = self._bit + index
            mask: i64 = validity[bit >> 3]
            if mask >> (bit & 7) & 1 == 0:
                return None
        start: i64 = i64(read_i32_le(self._offsets, 4 * index))
        end: i64 = i64(read_i32_le(self._offsets, 4 * index + 4))
        return self._data[start - self._base : end - self._base]


class ColumnRows(Rows):
    """Rows of Arrow's buffers: `timestamps` are little-endian 64-bit numbers, `partitions` 32-bit numbers."""

    def __init__(
        self,
        count: i64,
        base: i64,
        values: BinaryBuffers,
        keys: BinaryBuffers | None = None,
        timestamps: bytes | None = None,
        partitions: bytes | None = None,
        headers: list[Headers] | None = None,
        to: i64 = -1,
    ) -> None:
        super().__init__(count, base, to, ())
        self._values = values
        self._keys = keys if keys is not None else values
        self._timestamps: bytes = timestamps if timestamps is not None else b""
        self._partitions: bytes = partitions if partitions is not None else b""
        self._headers: list[Headers] = headers if headers is not None else []
        self.keyed = keys is not None
        self.stamped = timestamps is not None
        self.placed = partitions is not None
        self.headed = headers is not None

    def value(self, index: i64) -> bytes | None:
        return self._values.get(index)

    def key(self, index: i64) -> bytes | None:
        return self._keys.get(index)

    def timestamp(self, index: i64) -> i64:
        return read_i64_le(self._timestamps, 8 * index)

    def partition(self, index: i64) -> i64:
        return i64(read_i32_le(self._partitions, 4 * index))

    def headers(self, index: i64) -> Headers:
        return self._headers[index]
