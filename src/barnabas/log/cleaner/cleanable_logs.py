"""Decides which part of a log can be cleaned, whether that is worth it, and which segments become one. Pure functions.

Kafka's rules: never the active segment, nothing above the last stable offset, nothing younger than
min.compaction.lag.ms. A log is due when the dirty share of its bytes is above min.cleanable.dirty.ratio, or a dirty
record is older than max.compaction.lag.ms.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.types import Offset

if TYPE_CHECKING:  # the cleaner process groups segments without them
    from barnabas.log.log_offsets import LogOffsets
    from barnabas.log.log_segment import LogSegment

__all__ = ["LogToClean", "SegmentFiles", "cleanable", "group_segments"]

GROUP_SEGMENTS_MAX: Final = 64
"""The number of segments that may become one at a time. To replace them takes a few renames each, during which no
request is served."""
OFFSET_DELTA_MAX: Final = 2**31 - 1


class LogToClean(NamedTuple):
    """The part of a log that can be cleaned. Records in [first_dirty_offset, end_offset) have not been compared with
    earlier records and may be now."""

    first_dirty_offset: Offset
    end_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether a dirty record is older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """The dirty share of the bytes that can be cleaned."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


def first_dirty_offset(offsets: "LogOffsets", cleaned_offset: Offset | None) -> Offset:
    """Returns the offset up to which the log has been cleaned; its start offset if that is unknown or impossible."""
    if cleaned_offset is None or not offsets.log_start_offset <= cleaned_offset <= offsets.log_end_offset:
        return offsets.log_start_offset
    return cleaned_offset


def cleanable(
    segments: Sequence["LogSegment"],
    config: LogConfig,
    offsets: "LogOffsets",
    cleaned_offset: Offset | None,
    now_ms: int,
) -> LogToClean:
    """Returns the part of a log that can be cleaned now. `cleaned_offset` is that of the checkpoint."""
    first_dirty = first_dirty_offset(offsets, cleaned_offset)
    dirty = [segment for segment, following in pairwise(segments) if following.base_offset > first_dirty]
    end = segments[-1].base_offset
    for segment, following in pairwise(segments):
        if following.base_offset > offsets.last_stable_offset:
            end = min(end, segment.base_offset)
            break
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        young = (segment.base_offset for segment in dirty if segment.largest_timestamp > youngest_ms)
        end = min(end, next(young, end))
    overdue = False
    if config.max_compaction_lag_ms != LONG_MAX:
        oldest_ms = now_ms - config.max_compaction_lag_ms
        overdue = any(_is_older(segment, oldest_ms) for segment in dirty)
    return LogToClean(
        first_dirty,
        max(first_dirty, end),
        sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < end),
        overdue,
    )


def _is_older(segment: "LogSegment", oldest_ms: int) -> bool:
    try:
        return 0 < segment.first_timestamp() < oldest_ms
    except OSError:
        return True  # its cleaning will fail with a message; a bad file must not prevent the cleaning of other logs


class SegmentFiles(NamedTuple):
    """A segment to be cleaned, with the sizes of its files."""

    base_offset: Offset
    next_offset: Offset
    """The base offset of the next segment."""
    size: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentFiles], segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentFiles]]:
    """Groups neighbours that fit into one segment, so that logs do not become many small files."""
    groups: list[list[SegmentFiles]] = []
    size = offset_index_bytes = time_index_bytes = 0
    for segment in segments:
        size += segment.size
        offset_index_bytes += segment.offset_index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            groups
            and size <= segment_bytes
            and offset_index_bytes <= segment_index_bytes
            and time_index_bytes <= segment_index_bytes
            and len(groups[-1]) < GROUP_SEGMENTS_MAX
            and (not segment.size or segment.next_offset - 1 - groups[-1][0].base_offset <= OFFSET_DELTA_MAX)
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        size = segment.size
        offset_index_bytes, time_index_bytes = segment.offset_index_bytes, segment.time_index_bytes
    return groups
