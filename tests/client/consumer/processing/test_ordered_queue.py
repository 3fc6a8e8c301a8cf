import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.processing.ordered_queue import OrderedQueue, QueuedRecord
from barnabas.errors import UsageError
from barnabas.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Record(NamedTuple):
    offset: int
    key: Any


def taken(work: OrderedQueue) -> list[QueuedRecord]:
    found = []
    while (task := work.take()) is not None:
        found.append(task)
    return found


def offsets(tasks: list[QueuedRecord]) -> list[int]:
    return [task.record.offset for task in tasks]


def test_one_of_each_key_at_a_time() -> None:
    work = OrderedQueue()
    for offset, key in enumerate([b"a", b"a", b"b", None, None, b"a"]):
        work.add(P0, Record(offset, key))
    first = taken(work)
    assert offsets(first) == [0, 2, 3, 4]
    work.done(first[0])
    (second,) = taken(work)
    assert second.record.offset == 1
    assert (work.size, work.unfinished([P0]), work.unfinished([P1])) == (5, 5, 0)
    work.done(first[1])
    assert taken(work) == []
    work.done(second)
    assert offsets(taken(work)) == [5]


def test_the_same_key_in_two_partitions_is_two_keys() -> None:
    work = OrderedQueue()
    work.add(P0, Record(0, b"a"))
    work.add(P1, Record(0, b"a"))
    assert len(taken(work)) == 2


def test_by_partition_and_in_any_order() -> None:
    for ordered_by, count in (("partition", 1), ("none", 2)):
        work = OrderedQueue(ordered_by)
        work.add(P0, Record(0, b"a"))
        work.add(P0, Record(1, b"a"))
        assert len(taken(work)) == count


def test_keys_that_deserializers_made() -> None:
    work = OrderedQueue()
    for offset, key in enumerate([{"id": 1}, {"id": 1}, (1, 2)]):
        work.add(P0, Record(offset, key))
    assert offsets(taken(work)) == [0, 2]


def test_it_is_full_at_its_limit() -> None:
    work = OrderedQueue(limit=2)
    work.add(P0, Record(0, None))
    assert not work.is_full
    work.add(P0, Record(1, None))
    assert work.is_full
    work.done(taken(work)[0])
    assert not work.is_full


@pytest.mark.parametrize("arguments", [{"ordered_by": "topic"}, {"limit": 0}])
def test_what_makes_no_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        OrderedQueue(**arguments)


def test_partitions_that_are_gone_take_their_waiting_records_along() -> None:
    work = OrderedQueue()
    for offset, key in enumerate([b"a", b"a", b"b", b"b"]):
        work.add(P0, Record(offset, key))
    work.add(P1, Record(0, b"a"))
    in_work = work.take()
    assert in_work is not None
    work.drop_waiting([P0])
    assert (work.size, work.unfinished([P0])) == (2, 1)
    work.done(in_work)
    assert work.unfinished([P0]) == 0
    assert [task.partition for task in taken(work)] == [P1]


@given(
    records=st.lists(st.tuples(st.sampled_from([P0, P1]), st.sampled_from([b"a", b"b", b"c", None]))),
    seed=st.integers(0, 100),
    gone=st.booleans(),
)
def test_order_within_keys_whatever_finishes_first(records: list[Any], seed: int, gone: bool) -> None:
    rng = random.Random(seed)
    work = OrderedQueue(limit=1000)
    for offset, (partition, key) in enumerate(records):
        work.add(partition, Record(offset, key))
    seen: dict[Any, int] = {}
    in_work: list[QueuedRecord] = []
    finished = 0
    dropped = False
    while work.size:
        in_work += taken(work)
        assert len({task.ordering_key for task in in_work}) == len(in_work)
        if gone and not dropped and finished > len(records) // 2:
            dropped = True
            before = work.size
            work.drop_waiting([P0])
            assert work.size <= before
            assert work.unfinished([P0]) == sum(task.partition == P0 for task in in_work)
        task = in_work.pop(rng.randrange(len(in_work)))
        if task.record.key is not None:
            assert seen.get(task.ordering_key, -1) < task.record.offset
            seen[task.ordering_key] = task.record.offset
        work.done(task)
        finished += 1
        if not work.size:
            break
    assert not in_work
    assert work.unfinished([P0, P1]) == 0
    if not gone:
        assert finished == len(records)
