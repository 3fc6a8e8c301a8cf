"""The records of a partition, read and appended on the broker's own thread, past its network."""

from collections.abc import Iterable, Mapping

from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.errors import UsageError
from barnabas.records.batch import iter_batches
from barnabas.records.builder import build_batch
from barnabas.records.compiled.bulk_rows import murmur2
from barnabas.records.reader import read_records
from barnabas.records.record import Headers, Record
from barnabas.records.validation import validate_produce
from barnabas.replication.partition import Partition

__all__ = ["Text", "TopicRecord", "append", "partition_for_key", "records_of"]

Text = bytes | str
"""Bytes, or text that stands for its UTF-8."""

_READ_BYTES = 1 << 20


class TopicRecord(Record):
    """A record with its topic and its partition, which comparisons of records ignore."""

    topic: str
    partition: int

    @classmethod
    def of(cls, topic: str, partition: int, record: Record) -> "TopicRecord":
        made = cls(*record)
        made.topic, made.partition = topic, partition
        return made

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition}: {Record(*self)}>"


def records_of(partition: Partition) -> list[TopicRecord]:
    """Returns the records from the log's start to its high watermark; control records are left out."""
    log = partition.log
    topic, index = partition.topic_partition
    found: list[TopicRecord] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        file_slice = log.read(offset, _READ_BYTES, upper_bound=log.high_watermark, min_one_message=True).file_slice
        if file_slice is None:
            break
        for header, batch in iter_batches(file_slice.read()):
            if not header.is_control:
                records = (record for record in read_records(batch) if record.offset >= offset)
                found += [TopicRecord.of(topic, index, record) for record in records]
            offset = header.next_offset
    return found


def append(
    partition: Partition,
    key: Text | None,
    value: Text | None,
    headers: Mapping[str, Text | None] | Iterable[tuple[str, Text | None]],
    timestamp: int,
    now_ms: int,
    required_acks: int = -1,
) -> RecordMetadata:
    """Appends one record as the partition's leader. `timestamp`, `now_ms`: milliseconds. `required_acks`: -1 asks for
    enough in-sync replicas. Raises the error with which the broker refuses the record."""
    record = Record(0, timestamp, _bytes_of(key, "key"), _bytes_of(value, "value"), _headers_of(headers))
    batch = validate_produce(memoryview(build_batch([record])), partition.append_policy, now_ms, zstd_allowed=True)
    info = partition.append_as_leader(batch, required_acks)
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
