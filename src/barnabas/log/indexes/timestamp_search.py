"""Searches for records by timestamp within batches."""

import logging
from collections.abc import Sequence

from barnabas.config.log_config import RECORD_BYTES_MAX
from barnabas.log.log_offsets import TimestampOffset
from barnabas.log.log_segment import LogSegment
from barnabas.records.compression import DECOMPRESSED_MAX_BYTES, NONE
from barnabas.records.reader import read_records, records_section
from barnabas.records.validation import check_record_sizes
from barnabas.types import NO_TIMESTAMP, Offset

__all__ = ["max_timestamp", "offset_for_timestamp"]

_log = logging.getLogger(__name__)


def offset_for_timestamp(
    segments: Sequence[LogSegment], timestamp: int, start_offset: Offset, record_max_bytes: int
) -> TimestampOffset | None:
    """Returns the first record at or after `start_offset` whose timestamp is at or after `timestamp`. Raises
    InvalidRecord if one before it in its batch has more bytes than the topic allows now, as Kafka does."""
    for segment in segments:
        if segment.max_timestamp >= timestamp:
            found = _find_in(segment, timestamp, start_offset, record_max_bytes)
            if found is not None:
                return found
    return None


def _find_in(
    segment: LogSegment, timestamp: int, start_offset: Offset, record_max_bytes: int
) -> TimestampOffset | None:
    # up to and with the entry's offset all timestamps are at or before the entry's, which is before `timestamp`
    indexed, offset = segment.time_index.lookup(timestamp - 1)
    if indexed != NO_TIMESTAMP and segment.timestamp_at(offset) != indexed:
        _log.warning("%s is damaged, remove it: a start makes it anew", segment.time_index.path)
        offset = segment.base_offset
    found = segment.locate(max(offset, start_offset))
    for at, header in segment.headers(found[0]) if found is not None else ():
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        batch = segment.read(at, header.size_bytes)
        records = read_records(batch, check_crc=False)
        within = (each.timestamp >= timestamp and each.offset >= start_offset for each in records)
        number = next((number for number, is_found in enumerate(within) if is_found), len(records))
        if header.compression_type != NONE and record_max_bytes < RECORD_BYTES_MAX:
            data, _ = records_section(header, batch, DECOMPRESSED_MAX_BYTES)
            check_record_sizes(data, number + 1, record_max_bytes)
        if number < len(records):
            record = records[number]
            return TimestampOffset(record.timestamp, Offset(record.offset), header.partition_leader_epoch)
    return None


def max_timestamp(
    segments: Sequence[LogSegment], start_offset: Offset, record_max_bytes: int
) -> TimestampOffset | None:
    """Returns the first record at or after `start_offset` with the largest timestamp. Raises InvalidRecord as
    `offset_for_timestamp` does."""
    best = max((segment.max_timestamp for segment in segments if segment.size), default=NO_TIMESTAMP)
    if best == NO_TIMESTAMP:
        return None
    newest = [segment for segment in segments if segment.max_timestamp == best]
    return offset_for_timestamp(newest, best, start_offset, record_max_bytes)
