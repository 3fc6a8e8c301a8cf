"""Batches of records of one partition, as sequences of objects or as columns."""

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, overload

from barnabas.client.fetch.columns import Columns, columns_of, to_arrow
from barnabas.client.fetch.sections import Section
from barnabas.errors import UsageError
from barnabas.records.compiled.consumer_records import RecordCursor, RecordOrigin
from barnabas.records.consumer_record import ConsumerRecord, K, V
from barnabas.records.record import Headers
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RecordBatch", "cursor_of", "origin_of"]


def origin_of(topic_partition: TopicPartition, section: Section) -> RecordOrigin:
    """Returns the fields that the section's records share."""
    return RecordOrigin(topic_partition.topic, topic_partition.partition, section.leader_epoch, section.timestamp_type)


def cursor_of(origin: RecordOrigin, section: Section) -> RecordCursor:
    """Returns a cursor over the section's records. Raises ValueError."""
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
    """Returns the numbers of a column of little-endian 64-bit integers."""
    return struct.unpack(f"<{len(buffer) >> 3}q", buffer)


class RecordBatch(Sequence["ConsumerRecord[K, V]"], Generic[K, V]):
    """Records of one partition in the order of their offsets.

    The records were all checked when the batch was made. The objects are made when the batch is first iterated or
    indexed, all at once, and kept; `offsets`, `timestamps`, `keys`, `values` and `to_arrow` do without them. A batch
    keeps the response that it came in.
    """

    __slots__ = ("_columns", "_records", "_topic_partition")

    def __init__(self, topic_partition: TopicPartition, columns: Columns) -> None:
        self._topic_partition = topic_partition
        self._columns: Columns | None = columns
        self._records: list[ConsumerRecord[K, V]] | None = None

    @classmethod
    def of(cls, topic_partition: TopicPartition, records: "list[ConsumerRecord[K, V]]") -> "RecordBatch[K, V]":
        """Makes a batch of records that deserializers or interceptors have changed, or that an iteration left."""
        batch = cls.__new__(cls)
        batch._topic_partition, batch._columns, batch._records = topic_partition, None, records
        return batch

    @property
    def topic(self) -> str:
        return self._topic_partition.topic

    @property
    def partition(self) -> int:
        return self._topic_partition.partition

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
        return f"<RecordBatch of {self._topic_partition}: {len(self)} records>"

    def offsets(self) -> Sequence[int]:
        """Returns the offsets, in ascending order."""
        if self._columns is None:
            return [record.offset for record in self._all()]
        return _numbers(self._columns.columns.offsets.getvalue())

    def timestamps(self) -> Sequence[int]:
        """Returns milliseconds since 1970; -1 for records without a timestamp."""
        if self._columns is None:
            return [record.timestamp for record in self._all()]
        return _numbers(self._columns.columns.timestamps.getvalue())

    def headers(self) -> list[Headers]:
        """Returns the headers of each record; makes the objects."""
        return [record.headers for record in self._all()]

    def keys(self) -> "list[K | None]":
        """Returns the keys, copied anew by each call unless the objects were made already."""
        if self._records is not None or self._columns is None:
            return [record.key for record in self._all()]
        keys: list[Any] = self._columns.columns.keys.of(self._columns.data)
        return keys

    def values(self) -> "list[V | None]":
        """Returns the values, as `keys` does."""
        if self._records is not None or self._columns is None:
            return [record.value for record in self._all()]
        values: list[Any] = self._columns.columns.values.of(self._columns.data)
        return values

    def to_arrow(self, *, headers: bool = False) -> "pyarrow.RecordBatch":
        """Returns the records with the columns of `Consumer.arrow`. Needs pyarrow. Raises UsageError for a batch that
        deserializers or interceptors have seen."""
        columns = self._columns
        if columns is None:
            raise UsageError(
                "this batch has no bytes for Arrow: deserializers or interceptors have seen it, or an iteration had"
                " begun with it; use Consumer.arrow"
            )
        if headers and not columns.columns.with_headers:
            columns = columns_of(columns.sections, headers=True)
        return to_arrow(self._topic_partition, columns)

    def _all(self) -> "list[ConsumerRecord[K, V]]":
        records = self._records
        if records is None:
            assert self._columns is not None
            records = []
            for section in self._columns.sections:
                cursor_of(origin_of(self._topic_partition, section), section).read(records, section.record_count)
            self._records = records
        return records
