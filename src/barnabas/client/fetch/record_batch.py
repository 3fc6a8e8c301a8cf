"""Records of one partition together: sequences for those who want objects, columns for those who do not."""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, overload

from barnabas.client.fetch.columns import Columns, columns_of
from barnabas.client.fetch.sections import Section
from barnabas.errors import UsageError
from barnabas.records.consumer_kernel import RecordCursor, RecordOrigin
from barnabas.records.consumer_record import ConsumerRecord, K, V
from barnabas.records.record import Headers
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RecordBatch", "cursor_of", "origin_of"]


def origin_of(where: TopicPartition, section: Section) -> RecordOrigin:
    """What the section's records share."""
    return RecordOrigin(where.topic, where.partition, section.leader_epoch, section.timestamp_type)


def cursor_of(origin: RecordOrigin, section: Section) -> RecordCursor:
    """Reads the section's records. Raises ValueError."""
    return RecordCursor(
        origin,
        section.data,
        section.position,
        section.end,
        section.record_count,
        section.base_offset,
        section.base_timestamp,
        section.append_timestamp,
        section.first_offset,
        section.last_offset,
    )


def _numbers(buffer: bytes) -> tuple[int, ...]:
    """Those of a column of little-endian 64-bit numbers."""
    return struct.unpack(f"<{len(buffer) >> 3}q", buffer)


class RecordBatch(Sequence["ConsumerRecord[K, V]"], Generic[K, V]):
    """Records of one partition in the order of their offsets.

    All of them were looked at when the batch was made: their number is known and none is broken. The objects are made
    when the batch is first iterated or indexed, all at once, and kept; `offsets`, `timestamps`, `keys`, `values` and
    `to_arrow` do without them.
    A batch keeps the answer that it came in.
    """

    __slots__ = ("_columns", "_records", "_where")

    def __init__(self, where: TopicPartition, columns: Columns) -> None:
        self._where = where
        self._columns: Columns | None = columns
        self._records: list[ConsumerRecord[K, V]] | None = None

    @classmethod
    def of(cls, where: TopicPartition, records: "list[ConsumerRecord[K, V]]") -> "RecordBatch[K, V]":
        """Of records that deserializers or interceptors have seen, or that an iteration left."""
        batch = cls.__new__(cls)
        batch._where, batch._columns, batch._records = where, None, records
        return batch

    @property
    def topic(self) -> str:
        return self._where.topic

    @property
    def partition(self) -> int:
        return self._where.partition

    def __len__(self) -> int:
        return len(self._all()) if self._columns is None else int(self._columns.columns.count)

    def __iter__(self) -> "Iterator[ConsumerRecord[K, V]]":
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> "ConsumerRecord[K, V]": ...

    @overload
    def __getitem__(self, index: slice) -> "list[ConsumerRecord[K, V]]": ...

    def __getitem__(self, index: int | slice) -> "ConsumerRecord[K, V] | list[ConsumerRecord[K, V]]":
        return self._all()[index]

    def __repr__(self) -> str:
        return f"<RecordBatch of {self._where}: {len(self)} records>"

    def offsets(self) -> Sequence[int]:
        """The offsets, each above the one before."""
        if self._columns is None:
            return [record.offset for record in self._all()]
        return _numbers(self._columns.columns.offsets.getvalue())

    def timestamps(self) -> Sequence[int]:
        """Milliseconds since 1970; -1 for records without a timestamp."""
        if self._columns is None:
            return [record.timestamp for record in self._all()]
        return _numbers(self._columns.columns.timestamps.getvalue())

    def headers(self) -> list[Headers]:
        """The headers of each record; makes the objects."""
        return [record.headers for record in self._all()]

    def keys(self) -> "list[K | None]":
        """The keys, None for none; copied out anew by each call, unless the objects are there already."""
        if self._records is not None or self._columns is None:
            return [record.key for record in self._all()]
        keys: list[Any] = self._columns.columns.keys.of(self._columns.data)
        return keys

    def values(self) -> "list[V | None]":
        """As `keys`."""
        if self._records is not None or self._columns is None:
            return [record.value for record in self._all()]
        values: list[Any] = self._columns.columns.values.of(self._columns.data)
        return values

    def to_arrow(self, *, headers: bool = False) -> "pyarrow.RecordBatch":
        """The records as `Consumer.arrow` has them. Needs pyarrow. Raises UsageError for a batch that deserializers or
        interceptors have seen."""
        from barnabas.client.fetch.arrow_records import to_arrow

        columns = self._columns
        if columns is None:
            raise UsageError(
                "this batch has no bytes for Arrow: deserializers or interceptors have seen it, or an iteration had"
                " begun with it; use Consumer.arrow"
            )
        if headers and not columns.columns.with_headers:
            columns = columns_of(columns.sections, headers=True)
        return to_arrow(self._where, columns)

    def _all(self) -> "list[ConsumerRecord[K, V]]":
        records = self._records
        if records is None:
            assert self._columns is not None
            records = []
            for section in self._columns.sections:
                cursor_of(origin_of(self._where, section), section).read(records, section.record_count)
            self._records = records
        return records
