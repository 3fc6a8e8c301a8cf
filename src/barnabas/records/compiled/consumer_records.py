"""Reads the records of fetched batches as light objects, for consumers. Compiled by mypyc.

The buffer may be a whole Fetch response: nothing beyond the end of the batch is read. Records that do not fit their
batch raise ValueError or IndexError.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Final

from barnabas.records.compiled.mypyc_types import I64_MAX, I64_MIN, i64, mypyc_attr
from barnabas.records.compiled.record_walk import (
    _end_of_headers,
    _long_varint,
    _read_headers,
    _signed,
    _varint,
    _varlong,
)
from barnabas.records.record import Headers

_NO_HEADERS: Final[Headers] = ()
_COMPILED: Final = not __file__.endswith(".py")


class RecordOrigin:
    """The properties that all records of a batch share."""

    __slots__ = ("leader_epoch", "partition", "timestamp_type", "topic")

    def __init__(self, topic: str, partition: int, leader_epoch: int, timestamp_type: int) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type


# The garbage collector does not track these records: a million of them cost it nothing. A record would only leak if its
# key or value referred to the record itself.
@mypyc_attr(acyclic=True)
class ConsumerRecord:
    """One record that a consumer has fetched. Key and value are bytes, or objects that deserializers returned."""

    __slots__ = ("_headers", "_origin", "key", "offset", "timestamp", "value")

    def __init__(
        self, origin: RecordOrigin, offset: i64, timestamp: i64, key: object, value: object, headers: object
    ) -> None:
        """Takes `headers` as a tuple, or as the bytes that hold them, which are decoded at the first access."""
        self._origin = origin
        self._headers = headers
        self.offset: int = offset  # type checkers of applications do not know i64
        self.timestamp: int = timestamp
        self.key: Any = key
        self.value: Any = value

    @classmethod
    def __class_getitem__(cls, types: Any) -> Any:
        """Allows annotations such as `ConsumerRecord[str, dict]`: for type checkers the class is generic."""
        return GenericAlias(cls, types)

    @property
    def topic(self) -> str:
        return self._origin.topic

    @property
    def partition(self) -> int:
        return self._origin.partition

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that appended the record; -1 in records of old formats."""
        return self._origin.leader_epoch

    @property
    def timestamp_type(self) -> int:
        """0: the producer's time, 1: the broker's (LogAppendTime), -1: the record has no timestamp."""
        return self._origin.timestamp_type

    @property
    def headers(self) -> Headers:
        found = self._headers
        if isinstance(found, bytes):
            count: i64
            position: i64
            count, position = _varint(found, 0)
            found = _read_headers(found, position, count)
            self._headers = found
        assert isinstance(found, tuple)
        return found

    def _fields(self) -> tuple[str, int, int, int, int, object, object, Headers, int]:
        origin = self._origin
        return (
            origin.topic,
            origin.partition,
            int(self.offset),
            int(self.timestamp),
            origin.timestamp_type,
            self.key,
            self.value,
            self.headers,
            origin.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        origin = self._origin
        return hash((origin.topic, origin.partition, int(self.offset)))

    def __repr__(self) -> str:
        origin = self._origin
        return (
            f"ConsumerRecord(topic={origin.topic!r}, partition={origin.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return make_record, self._fields()


def make_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int = -1,
    timestamp_type: int = 0,
    key: object = None,
    value: object = None,
    headers: Headers = (),
    leader_epoch: int = -1,
) -> ConsumerRecord:
    """Makes a record from its fields, for tests of consumers and for pickle."""
    origin = RecordOrigin(topic, partition, leader_epoch, timestamp_type)
    return ConsumerRecord(origin, offset, timestamp, key, value, headers)


class RecordCursor:
    """Reads the records of one v2 batch, as many at a time as the caller asks for."""

    __slots__ = (
        "_append_timestamp",
        "_base_offset",
        "_base_timestamp",
        "_data",
        "_end",
        "_last_offset",
        "_log_append",
        "_minimum",
        "_origin",
        "_position",
        "left",
    )

    def __init__(
        self,
        origin: RecordOrigin,
        data: bytes,
        position: i64,
        end: i64,
        count: i64,
        base_offset: i64,
        base_timestamp: i64,
        append_timestamp: i64,
        minimum: i64,
        last_offset: i64,
    ) -> None:
        """Reads the `count` records of `data[position:end]`, except those below offset `minimum` and those whose offset
        is not above the one before. With an origin of LogAppendTime all get the timestamp `append_timestamp`."""
        if not 0 <= position <= end <= len(data):
            raise ValueError(f"records from byte {position} to {end} of {len(data)}")
        if count < 0 or (count == 0 and position != end):
            raise ValueError(f"{count} records in {end - position} bytes")
        self._origin = origin
        self._data = data
        self._position = position
        self._end = end
        self.left = count
        """The number of records that have not been read."""
        self._base_offset = base_offset
        self._base_timestamp = base_timestamp
        self._log_append = origin.timestamp_type == 1
        self._append_timestamp = append_timestamp
        self._minimum = minimum
        self._last_offset = last_offset

    def read(self, out: list[Any], limit: i64) -> None:
        """Reads at most `limit` records and appends them to `out`. Raises ValueError or IndexError at the first broken
        record: the records before it are in `out`, and the next call raises again."""
        data = self._data
        position: i64 = self._position
        last: i64 = self._end
        count: i64 = self.left
        left: i64 = count
        base_offset: i64 = self._base_offset
        before: i64 = max(self._minimum, base_offset) - 1
        last_offset: i64 = self._last_offset
        base_timestamp: i64 = self._base_timestamp
        log_append = self._log_append
        lowest: i64 = I64_MIN
        highest: i64 = I64_MAX
        if not log_append:  # a timestamp has 64 bits
            lowest -= min(base_timestamp, 0)
            highest -= max(base_timestamp, 0)
        origin = self._origin
        compiled = _COMPILED
        new = ConsumerRecord.__new__
        no_headers = _NO_HEADERS
        append_timestamp: i64 = self._append_timestamp
        record_class = ConsumerRecord
        if limit < 0:
            limit = 0
        stop: i64 = count - limit if count > limit else 0
        size: i64
        begin: i64 = position
        try:
            for left in range(count, stop, -1):
                begin = position
                # begin record_start a record
                length: i64 = data[position]
                position += 1
                if length > 127:
                    second: i64 = data[position]
                    if second < 128:
                        length = length & 127 | second << 7
                        position += 1
                    else:
                        length, position = _long_varint(data, position, length)
                end: i64 = position + (length >> 1)
                if length & 1 or end > last:
                    raise ValueError(f"a record has length {_signed(length)}, {last - position} bytes are left")
                delta: i64 = data[position + 1]  # after the attributes, of which no bit has a meaning yet
                if delta < 128:
                    delta = delta >> 1 ^ -(delta & 1)
                    position += 2
                else:
                    second = data[position + 2]
                    if second < 128:
                        delta = (delta & 127 | second << 7) >> 1 ^ -(delta & 1)
                        position += 3
                    else:
                        delta, position = _varlong(data, position + 1)
                offset: i64 = data[position]
                position += 1
                if offset > 127:
                    second = data[position]
                    if second < 128:
                        offset = offset & 127 | second << 7
                        position += 1
                    else:
                        offset, position = _long_varint(data, position, offset)
                # end record_start
                if left == 1 and end != last:
                    raise ValueError(f"{last - end} bytes follow the last record")
                if delta < lowest or delta > highest:
                    raise _no_time(delta, base_timestamp)
                if offset & 1:
                    raise ValueError(f"a record has offset {base_offset + _signed(offset)}, beyond its batch")
                offset = base_offset + (offset >> 1)
                if not before < offset <= last_offset:
                    if offset > last_offset:
                        raise ValueError(f"a record has offset {offset}, beyond its batch")
                    position = end
                    continue
                key: bytes | None = None
                # begin varint size
                size = data[position]
                position += 1
                if size > 127:
                    second = data[position]
                    if second < 128:
                        size = size & 127 | second << 7
                        position += 1
                    else:
                        size, position = _long_varint(data, position, size)
                # end varint
                if size != 1:
                    start: i64 = position
                    position += size >> 1
                    if size & 1 or position > end:
                        raise ValueError(f"the record of offset {offset} has a key of length {_signed(size)}")
                    key = data[start:position]
                value: bytes | None = None
                # begin varint size
                size = data[position]
                position += 1
                if size > 127:
                    second = data[position]
                    if second < 128:
                        size = size & 127 | second << 7
                        position += 1
                    else:
                        size, position = _long_varint(data, position, size)
                # end varint
                if size != 1:
                    start = position
                    position += size >> 1
                    if size & 1 or position > end:
                        raise ValueError(f"the record of offset {offset} has a value of length {_signed(size)}")
                    value = data[start:position]
                headers: object = no_headers
                if data[position] or position + 1 != end:
                    if data[position]:
                        start = position
                        position = _end_of_headers(data, position, end)
                        headers = data[start:position]
                    else:
                        position += 1
                    if position != end:
                        raise ValueError(f"the record of offset {offset} has a length that its fields do not fill")
                position = end
                before = offset
                timestamp: i64 = append_timestamp if log_append else base_timestamp + delta
                if compiled:
                    out.append(ConsumerRecord(origin, offset, timestamp, key, value, headers))
                else:  # takes half the time of ConsumerRecord(...)
                    record = new(record_class)
                    record._origin = origin
                    record._headers = headers
                    record.offset = offset
                    record.timestamp = timestamp
                    record.key = key
                    record.value = value
                    out.append(record)
            begin, left = position, stop
        finally:
            self._position = begin
            self._minimum = before + 1
            self.left = left


def _no_time(delta: i64, base_timestamp: i64) -> ValueError:
    return ValueError(f"a record's timestamp is {delta} beyond {base_timestamp}, which takes over 64 bits")
