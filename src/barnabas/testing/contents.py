"""The records of a partition, read and appended on the broker's own thread, past its network."""

from collections.abc import Iterable, Mapping

from barnabas.client.core.producer.batch import RecordMetadata
from barnabas.errors import UsageError
from barnabas.records.batch import iter_batches
from barnabas.records.builder import build_batch
from barnabas.records.bulk_kernel import murmur2
from barnabas.records.consumer_kernel import ConsumerRecord, RecordOrigin
from barnabas.records.reader import read_records
from barnabas.records.record import Headers, Record
from barnabas.records.validation import validate_produce
from barnabas.replication.partition import Partition

__all__ = ["Text", "append", "partition_for_key", "records_of"]

Text = bytes | str
"""Bytes, or text that stands for its UTF-8."""

_READ_BYTES = 1 << 20
_NO_TIMESTAMP = -1


def records_of(partition: Partition) -> list[ConsumerRecord]:
    """Returns the records from the log's start to its high watermark; control records are left out."""
    log = partition.log
    topic, index = partition.topic_partition
    found: list[ConsumerRecord] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        file_slice = log.read(offset, _READ_BYTES, upper_bound=log.high_watermark, min_one_message=True).file_slice
        if file_slice is None:
            break
        for header, batch in iter_batches(file_slice.read()):
            if not header.is_control:
                kind = _NO_TIMESTAMP if header.max_timestamp < 0 else int(header.is_log_append_time)
                origin = RecordOrigin(topic, index, header.partition_leader_epoch, kind)
                found += [
                    ConsumerRecord(origin, record.offset, record.timestamp, record.key, record.value, record.headers)
                    for record in read_records(batch)
                    if record.offset >= offset
                ]
            offset = header.next_offset
    return found


def append(
    partition: Partition,
    key: Text | None,
    value: Text | None,
    headers: Mapping[str, Text | None] | Iterable[tuple[str, Text | None]],
    timestamp: int,
    now_ms: int,
) -> RecordMetadata:
    """Appends one record as the partition's leader. `timestamp`, `now_ms`: milliseconds. Raises what the broker refuses
    a record for."""
    record = Record(0, timestamp, _bytes_of(key, "key"), _bytes_of(value, "value"), _headers_of(headers))
    batch = validate_produce(memoryview(build_batch([record])), partition.append_policy, now_ms, zstd_allowed=True)
    info = partition.append_as_leader(batch, -1)
    topic, index = partition.topic_partition
    placed_at = timestamp if info.log_append_time < 0 else info.log_append_time
    return RecordMetadata(topic, index, info.first_offset, placed_at)


def partition_for_key(key: Text | None, partitions: int) -> int:
    """Returns the partition that Kafka's clients choose for the key; 0 without one."""
    data = _bytes_of(key, "key")
    return 0 if data is None else (murmur2(data) & 0x7FFFFFFF) % partitions


def _headers_of(headers: Mapping[str, Text | None] | Iterable[tuple[str, Text | None]]) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _bytes_of(value, f"header {name}")) for name, value in pairs)


def _bytes_of(given: Text | None, what: str) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise UsageError(f"{what} is bytes, text or None, not {type(given).__name__}")
