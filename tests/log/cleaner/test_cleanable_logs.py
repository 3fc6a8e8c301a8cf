"""Which log is cleaned, how far, and which segments become one."""

from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.log.cleaner.cleanable_logs import GROUP_SEGMENTS_MAX, LogToClean, SegmentFiles, cleanable, group_segments
from barnabas.log.cleaner.cleaner import map_capacity
from barnabas.log.log_offsets import LogOffsets

NOW = 1_000_000


@dataclass
class Segment:
    """As much of a segment as the choice looks at."""

    base_offset: int
    size: int = 100
    largest_timestamp: int = 0
    first: int = 0

    def first_timestamp(self) -> int:
        return self.first


def choose(
    segments: list[Segment],
    *,
    cleaned: int | None = None,
    stable: int = 1000,
    start: int = 0,
    end: int = 1000,
    **settings: Any,
) -> LogToClean:
    offsets = LogOffsets(start, stable, end, end)
    return cleanable(segments, LogConfig(**settings), offsets, cleaned, NOW)  # type: ignore[arg-type]


def of(*bases: int, **fields: Any) -> list[Segment]:
    return [Segment(base, **fields) for base in bases]


def test_the_active_segment_is_never_cleaned() -> None:
    assert choose(of(0)) == LogToClean(0, 0, 0, 0, False)
    assert choose(of(0, 10, 20)) == LogToClean(0, 20, 0, 200, False)


def test_what_has_been_cleaned_counts_as_clean() -> None:
    found = choose(of(0, 10, 20, 30), cleaned=20)
    assert found == LogToClean(20, 30, 200, 100, False)
    assert found.ratio == pytest.approx(1 / 3)
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=0.5))
    assert found.is_due(LogConfig(min_cleanable_dirty_ratio=0.3))


def test_a_segment_that_is_half_cleaned_counts_twice_as_in_kafka() -> None:
    assert choose(of(0, 10, 20, 30), cleaned=15) == LogToClean(15, 30, 200, 200, False)


def test_all_clean() -> None:
    found = choose(of(0, 10, 20), cleaned=20)
    assert (found.dirty_bytes, found.ratio) == (0, 0.0)
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=0.0))


@pytest.mark.parametrize("cleaned", [None, 5, 5000])
def test_a_checkpoint_outside_of_the_log_says_nothing(cleaned: int | None) -> None:
    assert choose(of(10, 20, 30), cleaned=cleaned, start=12).first_dirty_offset == 12


@pytest.mark.parametrize(("stable", "end"), [(1000, 30), (30, 30), (25, 20), (20, 20), (19, 10), (0, 0)])
def test_nothing_at_or_above_the_last_stable_offset(stable: int, end: int) -> None:
    found = choose(of(0, 10, 20, 30), stable=stable)
    assert (found.end_offset, found.dirty_bytes) == (end, end * 10)


def test_young_records_wait() -> None:
    segments = [
        Segment(0, largest_timestamp=NOW - 500),
        Segment(10, largest_timestamp=NOW - 99),
        Segment(20, largest_timestamp=NOW - 500),
        Segment(30),
    ]
    assert choose(segments, min_compaction_lag_ms=100).end_offset == 10
    assert choose(segments, min_compaction_lag_ms=98).end_offset == 30
    assert choose(segments, min_compaction_lag_ms=100, cleaned=20).end_offset == 30, "clean ones are not asked"


def test_old_records_do_not_wait() -> None:
    segments = [Segment(0, first=NOW - 900), Segment(10, first=NOW - 500), Segment(20, first=NOW - 800), Segment(30)]
    few = LogConfig(min_cleanable_dirty_ratio=0.9)
    for lag, overdue in ((801, False), (800, False), (799, True)):
        found = choose(segments, cleaned=10, max_compaction_lag_ms=lag)
        assert (found.overdue, found.is_due(few)) == (overdue, overdue)
    assert not choose(segments, max_compaction_lag_ms=LONG_MAX).overdue
    assert not choose(of(0, 10, 20), max_compaction_lag_ms=1).overdue, "without timestamps nobody knows"


def test_overdue_records_that_may_not_be_cleaned_are_not_due() -> None:
    found = choose(of(0, 10, first=5), stable=3, max_compaction_lag_ms=1)
    assert found.overdue
    assert not found.is_due(LogConfig())


def test_the_lag_bounds_the_age_of_the_active_segment() -> None:
    assert LogConfig(segment_ms=500, max_compaction_lag_ms=100).roll_ms == 500
    compacted = frozenset(("compact", "delete"))
    assert LogConfig(segment_ms=500, max_compaction_lag_ms=100, cleanup_policy=compacted).roll_ms == 100
    assert LogConfig(segment_ms=500, cleanup_policy=compacted).roll_ms == 500


def files(*sizes: int, step: int = 10, index: int = 8, time: int = 12) -> list[SegmentFiles]:
    return [SegmentFiles(step * n, step * (n + 1), size, index, time) for n, size in enumerate(sizes)]


def sizes(groups: list[list[SegmentFiles]]) -> list[list[int]]:
    return [[segment.size for segment in group] for group in groups]


def test_neighbours_are_grouped_by_size() -> None:
    assert sizes(group_segments(files(40, 40, 40, 10, 90, 20), 100, 1000)) == [[40, 40], [40, 10], [90], [20]]
    assert sizes(group_segments(files(500, 10), 100, 1000)) == [[500], [10]]
    assert group_segments([], 100, 100) == []


def test_neighbours_are_grouped_by_the_size_of_their_indexes() -> None:
    assert sizes(group_segments(files(1, 1, 1, 1, index=40, time=10), 100, 100)) == [[1, 1], [1, 1]]
    assert sizes(group_segments(files(1, 1, 1, 1, index=10, time=60), 100, 100)) == [[1], [1], [1], [1]]


def test_offsets_of_a_group_stay_relative() -> None:
    step = 2**30
    assert sizes(group_segments(files(1, 1, 1, 1, step=step), 100, 1000)) == [[1, 1], [1, 1]]
    assert sizes(group_segments(files(1, 0, 0, 0, step=step), 100, 1000)) == [[1, 0, 0, 0]], "empty ones have none"


def test_a_group_has_a_bound() -> None:
    groups = group_segments(files(*[1] * (GROUP_SEGMENTS_MAX + 5)), 10_000, 10_000)
    assert [len(group) for group in groups] == [GROUP_SEGMENTS_MAX, 5]


def test_the_map_is_as_large_as_it_has_to_be() -> None:
    slots, keys = map_capacity(128 * 1024**2, 0.9, 10**9)
    assert keys == 128 * 1024**2 * 9 // 240, "as many keys as Kafka's map takes in the same memory"
    assert slots * 16 <= 128 * 1024**2 + 16
    assert keys / slots < 0.61
    assert map_capacity(128 * 1024**2, 0.9, 1000) == (1667, 1000)
    assert map_capacity(24, 1.0, 1000) == (2, 1)
    assert map_capacity(2**60, 1.0, 2**60)[0] < 2**31, "a map has no more slots"
    for buffer in (24, 100, 1000, 10**6):
        for offsets in (0, 1, 7, 10**6):
            slots, keys = map_capacity(buffer, 1.0, offsets)
            assert 0 < keys < slots
