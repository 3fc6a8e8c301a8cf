"""Builds the v2 batches that producers send and that coordinators append to their topics."""

from collections.abc import Iterable
from typing import Final, TypedDict, Unpack

from librt.strings import BytesWriter

from barnabas.errors import UsageError
from barnabas.records.batch import (
    BATCH_LENGTH_OVERHEAD,
    CHECKED,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    PREFIX,
    TRANSACTIONAL_FLAG,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compiled import record_walk
from barnabas.records.compression import CODEC_IDS, NONE, compress
from barnabas.records.record import Headers, Record

__all__ = ["BatchBuilder", "BatchOptions", "build_batch", "build_control_batch"]

COMMIT: Final = 1
ABORT: Final = 0


class BatchOptions(TypedDict, total=False):
    """The options of `BatchBuilder`, which has their defaults."""

    base_offset: int
    compression: str
    compression_level: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    log_append_time: int | None
    partition_leader_epoch: int


class BatchBuilder:
    """Collects records with consecutive offsets and builds one v2 batch of them.

    `append` knows no limit: callers stop at a size of their own, for which `size_bytes` is exact before compression.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_timestamp",
        "_codec",
        "_count",
        "_leader_epoch",
        "_level",
        "_log_append_time",
        "_max_timestamp",
        "_producer",
        "_records",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: str = "none",
        compression_level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        log_append_time: int | None = None,
        partition_leader_epoch: int = -1,
    ) -> None:
        codec = CODEC_IDS.get(compression)
        if codec is None:
            raise UsageError(f"compression {compression!r} does not exist; use one of {', '.join(CODEC_IDS)}")
        attributes = codec
        if transactional:
            attributes |= TRANSACTIONAL_FLAG
        if control:
            attributes |= CONTROL_FLAG
        if log_append_time is not None:
            attributes |= LOG_APPEND_TIME_FLAG
        self._attributes = attributes
        self._base_offset = base_offset
        self._codec = codec
        self._level = compression_level
        self._log_append_time = log_append_time
        self._leader_epoch = partition_leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._records = BytesWriter()
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1

    def __len__(self) -> int:
        """Returns the number of records so far."""
        return self._count

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, before compression."""
        return HEADER_SIZE + len(self._records)

    def append(self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()) -> None:
        """Adds a record. `timestamp` is in milliseconds since 1970."""
        if self._count == 0:
            self._base_timestamp = timestamp
        record_walk.write_record(self._records, self._count, timestamp - self._base_timestamp, key, value, headers)
        self._count += 1
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp

    def extend(self, records: Iterable[Record]) -> None:
        """Adds records with the next offsets in place of their own."""
        added = records if type(records) is list else list(records)
        if not added:
            return
        if self._count == 0:
            self._base_timestamp = added[0].timestamp
        most = record_walk.write_records(self._records, added, self._count, self._base_timestamp)
        self._count += len(added)
        self._max_timestamp = max(self._max_timestamp, most)

    def build(self) -> bytes:
        """Returns the bytes of the batch. Only a cleaner may write a batch without records."""
        records = self._records.getvalue()
        if self._codec != NONE:
            records = compress(self._codec, records, self._level)
        max_timestamp = self._max_timestamp if self._log_append_time is None else self._log_append_time
        checked = CHECKED.pack(
            self._attributes, self._count - 1, self._base_timestamp, max_timestamp, *self._producer, self._count
        )
        crc = crc32c(records, crc32c(checked))
        length = HEADER_SIZE - BATCH_LENGTH_OVERHEAD + len(records)
        prefix = PREFIX.pack(self._base_offset, length, self._leader_epoch, MAGIC, crc)
        return b"".join((prefix, checked, records))


def build_batch(records: Iterable[Record], **options: Unpack[BatchOptions]) -> bytes:
    """Builds one v2 batch of `records`, with consecutive offsets from `base_offset` on in place of their own."""
    builder = BatchBuilder(**options)
    builder.extend(records)
    return builder.build()


def build_control_batch(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Builds the end marker of a transaction: a batch of one control record, COMMIT or ABORT."""
    kind = COMMIT if committed else ABORT
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4, "big", signed=True)
    return build_batch(
        [Record(0, timestamp, key, value, ())],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
