"""Finding records by time, and producers' recent batches: the searches that read more than an index entry."""

from collections.abc import Iterator, Sequence

from barnabas.log.log_offsets import TimestampOffset
from barnabas.log.producer_state import ProducerStateManager
from barnabas.log.segment import LogSegment
from barnabas.records.batch import BatchHeader
from barnabas.records.reader import iter_records
from barnabas.types import NO_TIMESTAMP

__all__ = ["max_timestamp", "offset_for_timestamp", "refill_batches"]

_REFILL_BYTES = 8 * 1024 * 1024
"""How far in front of a snapshot the batches of producers in flight are looked for: five of a megabyte, and some others'."""


def offset_for_timestamp(segments: Sequence[LogSegment], timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record at or after `start_offset` whose timestamp is at or after `timestamp`."""
    for segment in segments:
        if segment.max_timestamp >= timestamp and (found := _find_in(segment, timestamp, start_offset)) is not None:
            return found
    return None


def _find_in(segment: LogSegment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    # up to and with the entry's offset all timestamps are at or before the entry's, which is before `timestamp`
    _, offset = segment.time_index.lookup(timestamp - 1)
    _, position = segment.offset_index.lookup(max(offset, start_offset))
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in iter_records(segment.read(at, header.size_bytes), check_crc=False):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def max_timestamp(segments: Sequence[LogSegment], start_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp."""
    best = max((segment.max_timestamp for segment in segments if segment.size), default=NO_TIMESTAMP)
    if best == NO_TIMESTAMP:
        return None
    return offset_for_timestamp([s for s in segments if s.max_timestamp == best], best, start_offset)


def refill_batches(segments: Sequence[LogSegment], producers: ProducerStateManager) -> None:
    """A snapshot keeps one batch of each producer; find the others that may still be retried, in the megabytes before it."""
    producers.refill_batches(_headers_before(segments, producers.end_offset))


def _headers_before(segments: Sequence[LogSegment], end_offset: int) -> Iterator[BatchHeader]:
    budget = _REFILL_BYTES
    chosen: list[tuple[LogSegment, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= end_offset:
            continue
        found = segment.locate(end_offset)
        end = found[0] if found else segment.size
        position = segment.offset_index.lookup_position(end - budget)[1] if end > budget else 0
        chosen.append((segment, position))
        budget -= end - position
        if budget <= 0:
            break
    for segment, position in reversed(chosen):
        for _, header in segment.headers(position):
            if header.base_offset >= end_offset:
                return
            if header.producer_id >= 0:
                yield header
