"""Searches for records by timestamp within batches."""

import logging
from collections.abc import Sequence

from barnabas.log.log_offsets import TimestampOffset
from barnabas.log.log_segment import LogSegment
from barnabas.records.reader import iter_records
from barnabas.types import NO_TIMESTAMP, Offset

__all__ = ["max_timestamp", "offset_for_timestamp"]

_log = logging.getLogger(__name__)


def offset_for_timestamp(
    segments: Sequence[LogSegment], timestamp: int, start_offset: Offset
) -> TimestampOffset | None:
    """Returns the first record at or after `start_offset` whose timestamp is at or after `timestamp`."""
    for segment in segments:
        if segment.max_timestamp >= timestamp and (found := _find_in(segment, timestamp, start_offset)) is not None:
            return found
    return None


def _find_in(segment: LogSegment, timestamp: int, start_offset: Offset) -> TimestampOffset | None:
    # up to and with the entry's offset all timestamps are at or before the entry's, which is before `timestamp`
    indexed, offset = segment.time_index.lookup(timestamp - 1)
    if indexed != NO_TIMESTAMP and segment.timestamp_at(offset) != indexed:
        _log.warning("%s is damaged, remove it: a start makes it anew", segment.time_index.path)
        offset = segment.base_offset
    found = segment.locate(max(offset, start_offset))
    for at, header in segment.headers(found[0]) if found is not None else ():
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in iter_records(segment.read(at, header.size_bytes), check_crc=False):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, Offset(record.offset), header.partition_leader_epoch)
    return None


def max_timestamp(segments: Sequence[LogSegment], start_offset: Offset) -> TimestampOffset | None:
    best = max((segment.max_timestamp for segment in segments if segment.size), default=NO_TIMESTAMP)
    if best == NO_TIMESTAMP:
        return None
    return offset_for_timestamp([s for s in segments if s.max_timestamp == best], best, start_offset)
