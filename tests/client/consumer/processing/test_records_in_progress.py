"""Records in a pool of workers: any order of events, and what may be committed at each moment."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.consumer.processing.ordered_queue import QueuedRecord
from barnabas.client.consumer.processing.processed_offsets import decode_done
from barnabas.client.consumer.processing.records_in_progress import RecordsInProgress
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.records.compiled.consumer_records import ConsumerRecord, RecordOrigin
from barnabas.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, key: Any = None, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord(RecordOrigin("t", partition, 3, 0), offset, 0, key, b"", ())


def never(_: TopicPartition) -> None:
    return None


def taken(work: RecordsInProgress) -> list[QueuedRecord]:
    found = []
    while (task := work.take()) is not None:
        found.append(task)
    return found


def test_nothing_is_committed_beyond_what_is_not_done() -> None:
    work = RecordsInProgress("key", 10, never)
    read = {P0: OffsetAndMetadata(9, "", 3), P1: OffsetAndMetadata(4, "", 3)}
    assert work.offsets(read) == read
    work.add([record(5), record(6), record(8)])
    tasks = taken(work)
    assert work.offsets(read)[P0][0] == 5
    work.done(tasks[1])
    behind = work.offsets(read)[P0]
    assert behind.offset == 5
    assert decode_done(5, behind.metadata) == {6}
    work.done(tasks[0])
    assert work.offsets(read)[P0].offset == 8
    work.done(tasks[2])
    assert work.offsets(read) == read, "what was read behind the last record was no record"


def test_what_waits_behind_a_slow_first_record_keeps_the_epoch_of_the_commit_before_it() -> None:
    """So the next owner notices a log that was cut below it."""
    work = RecordsInProgress("none", 10, {P0: OffsetAndMetadata(5, "", 2)}.get)
    work.add([record(5), record(6)])
    work.done(taken(work)[1])
    assert work.offsets({P0: OffsetAndMetadata(7, "", 3)})[P0].leader_epoch == 2


def test_what_a_commit_says_is_done_is_not_done_again() -> None:
    first = RecordsInProgress("none", 10, never)
    first.add([record(offset) for offset in range(6)])
    tasks = taken(first)
    for index in (1, 2, 5):
        first.done(tasks[index])
    committed = first.offsets({P0: OffsetAndMetadata(6)})[P0]
    assert committed.offset == 0
    second = RecordsInProgress("none", 10, {P0: committed}.get)
    second.add([record(offset) for offset in range(7)])
    again = taken(second)
    assert [task.record.offset for task in again] == [0, 3, 4, 6]
    for task in again:
        second.done(task)
    assert second.offsets({P0: OffsetAndMetadata(7)})[P0].offset == 7


def test_a_seek_back_begins_anew() -> None:
    work = RecordsInProgress("key", 10, never)
    work.add([record(5, b"a"), record(6, b"a"), record(7, b"b")])
    running = taken(work)
    work.add([record(5, b"a"), record(6, b"a")])
    assert taken(work) == [], "the same key is in work"
    work.done(running[0])
    assert [task.record.offset for task in taken(work)] == [5]
    assert work.offsets({P0: OffsetAndMetadata(7)})[P0].offset == 6


def test_room() -> None:
    work = RecordsInProgress("partition", 4, never)
    assert (work.room, work.wants_more) == (4, True)
    work.add([record(offset) for offset in range(4)])
    assert (work.room, work.wants_more) == (0, False)
    for _ in range(2):
        work.done(taken(work)[0])
    assert (work.room, work.wants_more) == (2, False)
    work.done(taken(work)[0])
    assert (work.room, work.wants_more) == (3, True)


def test_a_slow_record_lets_so_many_be_done_behind_it() -> None:
    work = RecordsInProgress("none", 2, never)
    work.add([record(0), record(1)])
    slow, task = taken(work)
    offset = 2
    work.done(task)
    while work.room:
        work.add([record(offset)])
        offset += 1
        work.done(*taken(work))
    assert offset == 22
    work.done(slow)
    assert work.offsets({P0: OffsetAndMetadata(offset)})[P0].offset == offset


@settings(max_examples=200, deadline=None)
@given(
    ordered_by=st.sampled_from(["key", "partition", "none"]),
    keys=st.lists(st.sampled_from([None, b"a", b"b"]), min_size=1, max_size=25),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=80),
)
def test_any_order_of_events(ordered_by: str, keys: list[Any], steps: list[tuple[int, int]]) -> None:
    """Two partitions with the same keys; workers take and finish as they please, and one may be revoked."""
    work = RecordsInProgress(ordered_by, 8, never)
    to_come = {
        topic_partition: [record(offset, key, topic_partition.partition) for offset, key in enumerate(keys)]
        for topic_partition in (P0, P1)
    }
    read = {P0: OffsetAndMetadata(0), P1: OffsetAndMetadata(0)}
    running: list[QueuedRecord] = []
    done: dict[TopicPartition, list[int]] = {P0: [], P1: []}

    def check() -> None:
        for topic_partition, found in work.offsets(read).items():
            assert set(range(found.offset)) <= set(done[topic_partition])
            assert decode_done(found.offset, found.metadata) <= set(done[topic_partition])
            ordered = [keys[task.record.offset] for task in running if task.partition == topic_partition]
            if ordered_by == "key":
                named = [key for key in ordered if key is not None]
                assert len(named) == len(set(named))
            elif ordered_by == "partition":
                assert len(ordered) <= 1

    for kind, number in [*steps, *[(0, 8), (1, 0), (2, 0)] * (2 * len(keys) + len(steps))]:
        topic_partition = (P0, P1)[number % 2]
        if kind == 0:
            for topic_partition, left in to_come.items():
                records = left[: min(number, work.room)]
                del left[: len(records)]
                if records:
                    work.add(records)
                    read[topic_partition] = OffsetAndMetadata(records[-1].offset + 1)
        elif kind == 1 and (task := work.take()) is not None:
            running.append(task)
        elif kind == 2 and running:
            task = running.pop(number % len(running))
            done[task.partition].append(task.record.offset)
            work.done(task)
        elif kind == 3 and number == 0:
            # revoked and assigned again: what is not done comes once more
            work.forget([topic_partition])
            stands = len(done[topic_partition]) and min(set(range(len(keys) + 1)) - set(done[topic_partition]))
            to_come[topic_partition] = [
                record(offset, keys[offset], topic_partition.partition) for offset in range(stands, len(keys))
            ]
            read[topic_partition] = OffsetAndMetadata(stands)
        check()
    assert not running
    assert not work.unfinished([P0, P1])
    assert {topic_partition: found.offset for topic_partition, found in work.offsets(read).items()} == {
        P0: len(keys),
        P1: len(keys),
    }
    for topic_partition in (P0, P1):
        assert set(done[topic_partition]) == set(range(len(keys)))
        for key in {key for key in keys if key is not None} if ordered_by == "key" else ():
            own = [offset for offset in done[topic_partition] if keys[offset] == key]
            assert sorted(set(own)) == list(dict.fromkeys(own)), "first times are in order"
