"""Finds what is missing in a log that is loaded: a segment that was removed or cut short while the broker was down.

The segments of a log adjoin: a new one begins at the offset behind the last batch. Only compaction moves a segment's
end back, and a log that was copied from a compacted one has its gaps; what is missing there cannot be told from that.
A log has been compacted if its topic is compacted now, if the cleaner's checkpoint says so, or if batches that adjoin
in a file do not adjoin by their offsets: nobody but the cleaner removes single batches. So a topic that is compacted no
more is as whole as it was, also on a follower that has cleaned nothing itself.
"""

import contextlib
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas.config.log_config import LONG_MAX
from barnabas.log.indexes.sparse_index import CorruptIndex
from barnabas.log.log_segment import LogSegment
from barnabas.types import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset

__all__ = ["Hole", "SegmentEnd", "check_end", "holes_between", "holes_of", "mark_of", "was_compacted", "with_hole"]

_LOST: Final = re.compile(r"^offsets (\d+) to (\d+) are lost: (.*)$", re.MULTILINE)

_UNINDEXED_MAX: Final = 1024 * 1024
"""The bytes at a segment's start that may have no entry in the offset index: Kafka makes one for a whole append."""
_SEARCHED_MAX: Final = 1024**3
"""The bytes of a log in which gaps inside segments are searched; compaction begins with the oldest."""


class Hole(NamedTuple):
    """Records in [first_offset, next_offset) that the log had and has no more."""

    first_offset: Offset
    next_offset: Offset
    what: str
    is_sure: bool = True
    """False if compaction leaves such gaps, too."""

    def __str__(self) -> str:
        return f"{self.what} (offsets {self.first_offset} to {self.next_offset - 1})"


def mark_of(holes: Sequence[Hole]) -> str:
    """Returns the text that the mark of a damaged log has for holes at its end, where no file tells of them later."""
    return "\n".join(f"offsets {first} to {following - 1} are lost: {what}" for first, following, what, _ in holes)


def holes_of(mark: str) -> list[Hole]:
    """Returns the holes that the mark of a damaged log tells of; none if it is about something else."""
    return [Hole(Offset(int(found[1])), Offset(int(found[2]) + 1), found[3]) for found in _LOST.finditer(mark)]


def with_hole(holes: Sequence[Hole], added: Hole) -> list[Hole]:
    """Returns the holes with one more. Those that touch it are one with it."""
    others = [hole for hole in holes if hole.next_offset < added.first_offset or hole.first_offset > added.next_offset]
    first = min([added.first_offset, *(hole.first_offset for hole in holes if hole not in others)])
    following = max([added.next_offset, *(hole.next_offset for hole in holes if hole not in others)])
    return sorted([*others, added._replace(first_offset=first, next_offset=following)])


class SegmentEnd(NamedTuple):
    """The offset behind the last whole batch of a segment, how many bytes follow, and that batch's leader epoch."""

    offset: Offset
    rest: int
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


def check_end(segment: LogSegment) -> SegmentEnd:
    """Reads the headers from the last index entry on. Raises OSError, CorruptIndex if the last entry of an index is not
    of the batch that it names, or lies before later timestamps."""
    index, times = segment.offset_index, segment.time_index
    indexed_offset, indexed = index.lookup(Offset(LONG_MAX))
    position = indexed
    last_offset, newest, named = Offset(segment.base_offset - 1), NO_TIMESTAMP, NO_TIMESTAMP
    time, time_offset = times.last_entry()
    epoch = NO_LEADER_EPOCH
    for at, header in segment.headers(indexed):
        if at == indexed and len(index) and header.last_offset > indexed_offset:
            raise CorruptIndex(f"{index.path}: its last entry is of another batch")
        if not len(index) and at > max(_UNINDEXED_MAX, 2 * segment.index_interval_bytes):
            raise CorruptIndex(f"{index.path}: has no entry for {segment.size} bytes")
        in_order = at == position and last_offset < header.base_offset <= header.last_offset
        if not in_order or not segment.can_hold_offset(header.last_offset):
            break
        if header.base_offset <= time_offset <= header.last_offset:
            named = header.max_timestamp
        newest = max(newest, header.max_timestamp)
        last_offset, position, epoch = header.last_offset, at + header.size_bytes, header.partition_leader_epoch
    if len(index) and last_offset < segment.base_offset:
        raise CorruptIndex(f"{index.path}: its last entry points to no batch")
    if newest > time:
        raise CorruptIndex(f"{times.path}: its last entry is {time}, a batch has {newest}")
    is_whole = position == segment.size
    if is_whole and len(times) and named != time and segment.timestamp_at(time_offset) != time:
        raise CorruptIndex(f"{times.path}: its last entry {time} is not that of offset {time_offset}")
    return SegmentEnd(Offset(last_offset + 1), segment.size - position, epoch)


def holes_between(
    segments: Sequence[LogSegment], ends: Sequence[SegmentEnd | None], cleaned_offset: Offset
) -> list[Hole]:
    """Returns the holes between segments with these ends; None is a segment that cannot be read. Below `cleaned_offset`
    compaction has left gaps."""
    holes = []
    for (segment, following), end in zip(pairwise(segments), ends, strict=False):
        path = segment.path(".log")
        if end is None:
            holes.append(Hole(segment.base_offset, following.base_offset, f"{path} cannot be read"))
        elif end.rest:
            holes.append(Hole(end.offset, following.base_offset, f"{path} does not end with a whole batch"))
        elif end.offset < following.base_offset and following.base_offset > cleaned_offset:
            what = f"records are missing between {path} and {following.path('.log')}"
            holes.append(Hole(end.offset, following.base_offset, what, is_sure=False))
    return holes


def was_compacted(segments: Sequence[LogSegment]) -> bool:
    """Returns whether a gap is inside of a segment, up to the first gigabyte. Raises OSError."""
    searched = 0
    for segment in segments:
        position, next_offset = 0, None
        with contextlib.suppress(OSError):
            for at, header in segment.headers(0):
                if next_offset is not None and at == position and header.base_offset > next_offset:
                    return True
                position, next_offset = at + header.size_bytes, header.next_offset
        searched += segment.size
        if searched > _SEARCHED_MAX:
            break
    return False
