"""Many records at once into the record sections of batches: from lists, or from the buffers of Arrow columns.

Compiled like `kernel`. A section is what stands behind a batch's header, uncompressed; its offset deltas count from 0.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from librt.strings import BytesWriter, read_i32_le, read_i64_le

from barnabas.records.compiled import i64
from barnabas.records.kernel import write_record

Headers = tuple[tuple[str, bytes | None], ...]

_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 32
"""The most that a record needs besides its fields; its offset fits 32 bits."""
_HEADER_OVERHEAD: Final = 10

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def is_compiled() -> bool:
    """True when this module runs as machine code."""
    return not __file__.endswith(".py")


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 as a signed number: `murmur2(b"21")` is -973932308. Source: Kafka's Utils.murmur2."""
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


class RecordSection(NamedTuple):
    """The records of one batch to be."""

    partition: int
    records: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int
    size_bytes: int
    """Of the batch with its header, before compression."""


class _Open:
    """A section that is being filled."""

    __slots__ = ("base_timestamp", "count", "max_timestamp", "out")

    def __init__(self) -> None:
        self.out = BytesWriter()
        self.count: i64 = 0
        self.base_timestamp: i64 = 0
        self.max_timestamp: i64 = 0


class SectionWriter:
    """Sorts records into sections by partition. A section is closed when the next record might make its batch larger
    than `batch_size`; a single larger record has a batch of its own."""

    __slots__ = ("_batch_size", "_choose", "_open", "_partition_count", "_record_max", "_row", "_sticky", "sections")

    def __init__(self, partition_count: int, sticky: int, choose: Any, batch_size: int, record_max: int) -> None:
        """`sticky`: where records without key and partition go until a batch there is full; `choose()` then gives the
        next. `record_max`: the largest record that may be sent, in bytes."""
        if not 0 <= sticky < partition_count:
            raise ValueError(f"there is no partition {sticky}, only 0 to {partition_count - 1}")
        self.sections: list[RecordSection] = []
        """Closed ones, in the order in which they became full."""
        self._batch_size: i64 = batch_size
        self._record_max: i64 = record_max
        self._sticky: i64 = sticky
        self._choose: Any = choose
        self._partition_count: i64 = partition_count
        self._open: list[_Open] = [_Open() for _ in range(partition_count)]
        self._row: i64 = 0

    def add(self, key: bytes | None, value: bytes | None, timestamp: i64, partition: i64, headers: Headers) -> None:
        """A record for `partition`; -1: by murmur2 of the key as Kafka's Java producer, or where it sticks."""
        size: i64 = _RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        for header in headers:
            content = header[1]
            size += 4 * len(header[0]) + _HEADER_OVERHEAD
            if content is not None:
                size += len(content)
        if size > self._record_max:
            raise ValueError(f"row {self._row} makes a record of up to {size} bytes, {self._record_max} are allowed")
        if timestamp < 0:
            raise ValueError(f"row {self._row} has the timestamp {timestamp}; give milliseconds since 1970")
        sticks: bool = False
        if partition == -1:
            if key is None:
                sticks = True
                partition = self._sticky
            else:
                partition = (murmur2(key) & 0x7FFFFFFF) % self._partition_count
        elif not 0 <= partition < self._partition_count:
            raise ValueError(
                f"row {self._row} is for partition {partition}, there are 0 to {self._partition_count - 1}"
            )
        section = self._open[partition]
        limit: i64 = self._batch_size - _BATCH_OVERHEAD - size
        if section.count > 0 and len(section.out) > limit:
            self._close(partition)
            if sticks:
                self._sticky = self._choose()
                partition = self._sticky
                section = self._open[partition]
                if section.count > 0 and len(section.out) > limit:
                    self._close(partition)
        if section.count == 0:
            section.base_timestamp = timestamp
            section.max_timestamp = timestamp
        elif timestamp > section.max_timestamp:
            section.max_timestamp = timestamp
        write_record(section.out, section.count, timestamp - section.base_timestamp, key, value, headers)
        section.count += 1
        self._row += 1

    def _close(self, partition: i64) -> None:
        section = self._open[partition]
        records = section.out.getvalue()
        self.sections.append(
            RecordSection(
                int(partition),
                records,
                int(section.count),
                int(section.base_timestamp),
                int(section.max_timestamp),
                _BATCH_OVERHEAD + len(records),
            )
        )
        section.out.truncate(0)
        section.count = 0

    def finish(self) -> list[RecordSection]:
        """All sections; there is nothing open any more."""
        partition: i64 = 0
        while partition < self._partition_count:
            if self._open[partition].count > 0:
                self._close(partition)
            partition += 1
        return self.sections


def _as_bytes(given: object, what: str, row: i64) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"the {what} of row {row} is bytes or None, not {type(given).__name__}")


def encode_lists(
    writer: SectionWriter,
    values: list[Any],
    keys: list[Any] | None,
    timestamps: list[int] | None,
    timestamp: i64,
    partitions: list[int] | None,
    headers: list[Headers] | None,
) -> None:
    """Add a record for each of `values`. Each other list, where it is not None, has the same length; `timestamp` is
    that of all without `timestamps`. TypeError or ValueError names the row that cannot be sent."""
    count: i64 = len(values)
    for name, other in (("keys", keys), ("timestamps", timestamps), ("partitions", partitions), ("headers", headers)):
        if other is not None and len(other) != count:
            raise ValueError(f"{count} values, but {len(other)} {name}")
    index: i64 = 0
    stamp: i64 = timestamp
    partition: i64 = -1
    pairs: Headers = ()
    key: bytes | None = None
    while index < count:
        given = values[index]
        value = given if isinstance(given, bytes) else _as_bytes(given, "value", index)
        if keys is not None:
            given = keys[index]
            key = given if isinstance(given, bytes) else _as_bytes(given, "key", index)
        if timestamps is not None:
            stamp = timestamps[index]
        if partitions is not None:
            partition = partitions[index]
        if headers is not None:
            pairs = headers[index]
        writer.add(key, value, stamp, partition, pairs)
        index += 1


class BinaryBuffers:
    """An Arrow column of binary or string type with 32-bit offsets, its buffers as bytes."""

    __slots__ = ("_base", "_bit", "_data", "_offsets", "_validity")

    def __init__(self, offsets: bytes, data: bytes, validity: bytes | None, bit: i64) -> None:
        """`data` begins where the first offset points to; `bit`: where the first value is in the validity bitmap."""
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


def encode_columns(
    writer: SectionWriter,
    count: i64,
    values: BinaryBuffers,
    keys: BinaryBuffers | None,
    timestamps: bytes | None,
    timestamp: i64,
    partitions: bytes | None,
    headers: list[Headers] | None,
) -> None:
    """Add `count` records from Arrow's buffers: `timestamps` are little-endian numbers of 64 bits, `partitions` of
    32. ValueError names the row that cannot be sent."""
    index: i64 = 0
    stamp: i64 = timestamp
    partition: i64 = -1
    pairs: Headers = ()
    key: bytes | None = None
    while index < count:
        if keys is not None:
            key = keys.get(index)
        if timestamps is not None:
            stamp = read_i64_le(timestamps, 8 * index)
        if partitions is not None:
            partition = i64(read_i32_le(partitions, 4 * index))
        if headers is not None:
            pairs = headers[index]
        writer.add(key, values.get(index), stamp, partition, pairs)
        index += 1
