"""Decides which segments can be deleted: by time, by size, by the log start offset. Pure functions."""

from collections.abc import Callable, Sequence

from barnabas.config.log_config import LogConfig
from barnabas.log.log_offsets import LogOffsets
from barnabas.log.log_segment import LogSegment
from barnabas.types import Offset

__all__ = ["count_deletable"]


def count_deletable(segments: Sequence[LogSegment], config: LogConfig, offsets: LogOffsets, now_ms: int) -> int:
    """Returns how many of the oldest segments can be deleted. All of them only if the active one has records: the log
    rolls it.

    Nothing above the high watermark goes. Without `delete` in cleanup.policy only what lies below the log's start goes.
    """
    most = _replicated_prefix(segments, offsets)
    inactive = min(most, len(segments) - 1)
    count = _count(inactive, lambda number: segments[number + 1].base_offset <= offsets.log_start_offset)
    if "delete" in config.cleanup_policy:
        if config.retention_ms >= 0:
            oldest_kept = now_ms - config.retention_ms
            count = max(count, _count(most, lambda number: segments[number].largest_timestamp < oldest_kept))
        if config.retention_bytes >= 0:
            count = max(count, _count_by_size(segments, most, config.retention_bytes))
    return count


def _end_of(segments: Sequence[LogSegment], number: int, offsets: LogOffsets) -> Offset:
    return segments[number + 1].base_offset if number + 1 < len(segments) else offsets.log_end_offset


def _replicated_prefix(segments: Sequence[LogSegment], offsets: LogOffsets) -> int:
    count = 0
    for number, segment in enumerate(segments):
        empty_active = number + 1 == len(segments) and not segment.size
        if empty_active or _end_of(segments, number, offsets) > offsets.high_watermark:
            break
        count += 1
    return count


def _count(most: int, deletable: Callable[[int], bool]) -> int:
    count = 0
    while count < most and deletable(count):
        count += 1
    return count


def _count_by_size(segments: Sequence[LogSegment], most: int, retention_bytes: int) -> int:
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    while count < most and excess - segments[count].size >= 0:
        excess -= segments[count].size
        count += 1
    return count
