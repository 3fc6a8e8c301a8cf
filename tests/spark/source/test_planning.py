"""How a batch is bounded and cut. No Spark."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.source.offsets import Plan
from barnabas.spark.source.planning import TOGETHER_MAX, OffsetRange, bounded, bounded_by_bytes, combined, split
from barnabas.types import TopicPartition

PARTITIONS = [TopicPartition("t", index) for index in range(6)]


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    found = []
    for where in PARTITIONS[: draw(st.integers(0, 6))]:
        start = draw(st.integers(0, 1000))
        found.append(OffsetRange(where, start, start + draw(st.integers(-5, 400))))
    return found


def test_a_limit_is_shared_in_proportion_and_starves_nobody() -> None:
    start = dict.fromkeys(PARTITIONS[:3], 0)
    ends = dict(zip(PARTITIONS, (900, 100, 1)))
    assert bounded(100, start, ends) == dict(zip(PARTITIONS, (89, 9, 1)))
    assert bounded(1001, start, ends) == ends
    assert bounded(1, start, ends) == dict.fromkeys(PARTITIONS[:3], 1)


def test_a_limit_in_bytes_goes_by_the_size_of_records() -> None:
    start = dict.fromkeys(PARTITIONS[:2], 10)
    ends = dict.fromkeys(PARTITIONS[:2], 110)
    sizes = {PARTITIONS[0]: 1000.0, PARTITIONS[1]: 10.0}
    found = bounded_by_bytes(50_500, start, ends, sizes)
    assert found == {PARTITIONS[0]: 60, PARTITIONS[1]: 60}
    assert sum((found[where] - start[where]) * sizes[where] for where in found) == 50_500


@settings(max_examples=200, deadline=None)
@given(ranges(), st.integers(1, 500))
def test_bounds_lie_within_and_move_on(found: list[OffsetRange], limit: int) -> None:
    start = {each.partition: each.start for each in found}
    ends = {each.partition: each.end for each in found}
    limited = bounded(limit, start, ends)
    assert limited.keys() == ends.keys()
    for where, end in limited.items():
        assert end == ends[where] or start[where] < end < ends[where]
    taken = sum(max(limited[where] - start[where], 0) for where in limited)
    assert taken <= limit + len(found)
    assert bool(taken) == any(each.size for each in found)


@settings(max_examples=300, deadline=None)
@given(ranges(), st.integers(0, 40), st.integers(0, 90), st.lists(st.floats(0.1, 1e4), min_size=6, max_size=6))
def test_pieces_are_the_whole(found: list[OffsetRange], least: int, most: int, sizes: list[float]) -> None:
    pieces = split(found, Plan(least, most), dict(zip(PARTITIONS, sizes)))
    assert all(piece.size for piece in pieces)
    assert not most or all(piece.size <= most for piece in pieces)
    total = sum(each.size for each in found)
    assert len(pieces) >= min(least, total)
    for each in found:
        mine = [piece for piece in pieces if piece.partition == each.partition]
        assert [offset for piece in mine for offset in range(piece.start, piece.end)] == list(
            range(each.start, each.end)
        )


def test_large_ranges_are_cut_first() -> None:
    found = [OffsetRange(PARTITIONS[0], 0, 1000), OffsetRange(PARTITIONS[1], 0, 10)]
    assert [piece.partition.partition for piece in split(found, Plan(5))] == [0, 0, 0, 0, 1]
    assert len(split(found, Plan())) == 2
    assert [piece.size for piece in split(found[:1], Plan(0, 400))] == [333, 333, 334]


def test_what_has_large_records_is_cut_first() -> None:
    found = [OffsetRange(where, 0, 100) for where in PARTITIONS[:2]]
    pieces = split(found, Plan(10), {PARTITIONS[0]: 1000.0, PARTITIONS[1]: 10.0})
    assert [piece.partition.partition for piece in pieces] == [0] * 9 + [1]


@settings(max_examples=200, deadline=None)
@given(ranges(), st.integers(0, 9), st.integers(0, 900))
def test_small_ranges_share_a_task(found: list[OffsetRange], least: int, most: int) -> None:
    plan = Plan(least, most)
    pieces = split(found, plan)
    tasks = combined(pieces, plan)
    assert [piece for task in tasks for piece in task] == pieces
    assert len(tasks) >= min(least, len(pieces))
    limit = min(most or TOGETHER_MAX, TOGETHER_MAX)
    sizes = [sum(piece.size for piece in task) for task in tasks]
    assert all(size <= limit for size, task in zip(sizes, tasks) if len(task) > 1)
    if len(tasks) < len(pieces):
        assert all(size + following[0].size > limit for size, following in zip(sizes, tasks[1:]))


def test_a_task_for_little_and_one_for_each_of_much() -> None:
    small = [OffsetRange(where, 0, 10) for where in PARTITIONS]
    assert combined(small, Plan()) == [tuple(small)]
    assert combined(small, Plan(min_partitions=2)) == [(piece,) for piece in small]
    large = [each._replace(end=TOGETHER_MAX) for each in small]
    assert combined(large, Plan()) == [(piece,) for piece in large]
    assert combined([], Plan()) == []
