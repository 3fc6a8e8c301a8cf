"""What a streaming query decides on the driver, with a cluster and a clock that the tests hold. No Spark."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import RequestTimedOut
from barnabas.spark.source.data_loss import DataLoss
from barnabas.spark.source.micro_batches import MicroBatches, ranges_of
from barnabas.spark.source.offset_reader import LogEnd, Topics
from barnabas.spark.source.offsets import StreamOffset, parse_stream_offset
from barnabas.spark.source.options import Position, SourceOptions
from barnabas.spark.source.planning import split
from barnabas.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class FakeCluster:
    """Topics as dictionaries; what is looked up most recently wins."""

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        self.first: dict[TopicPartition, int] = {}
        self.at = dict(ends)
        self.epochs: dict[TopicPartition, int] = {}
        self.epoch_ends: dict[tuple[TopicPartition, int], int] = {}
        self.asked_epochs: list[Mapping[TopicPartition, int]] = []
        self.wait: Callable[[float], bool] = lambda seconds: False
        self.ids = {"t": "id-1"}
        self.sizes: dict[TopicPartition, float] = {}
        self.committed: list[Mapping[TopicPartition, LogEnd]] = []
        self.looks = 0
        self.refuses = False

    def topics(self, *, missing_ok: bool = False) -> Topics:
        return Topics(self.at, self.ids)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: self.first.get(where, 0) for where in partitions}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        self.looks += 1
        return {where: LogEnd(self.at[where], self.epochs.get(where, -1)) for where in partitions}

    def ends_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked_epochs.append(dict(epochs))
        return {where: self.epoch_ends[where, epoch] for where, epoch in epochs.items()}

    def wait_for_records(self, offsets: Mapping[TopicPartition, int], seconds: float) -> bool:
        assert offsets == self.at
        return self.wait(seconds)

    def resolve(self, position: Position, partitions: Any) -> dict[TopicPartition, int]:
        latest = {where: self.at[where] for where in partitions}
        return self.earliest(partitions) if position.kind == "earliest" else latest

    def record_bytes(self, partitions: Any) -> dict[TopicPartition, float]:
        return self.sizes

    def commit_for_lag(self, group_id: str, ends: Mapping[TopicPartition, LogEnd]) -> None:
        if self.refuses:
            raise RequestTimedOut("too late")
        self.committed.append(ends)


class Clock:
    """Sleeping moves it; `on_sleep` is what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.on_sleep: Any = None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.on_sleep is not None:
            self.on_sleep()


class Query:
    """A feed as Spark would use it: offsets go through JSON."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        given = {"bootstrap.servers": "a:1", "subscribe": "t", "startingOffsets": "earliest", **options}
        self.clock = Clock()
        self.cluster = cluster
        cluster.wait = self._nothing_comes
        self.feed = MicroBatches(SourceOptions.parse(given, streaming=True), cluster, self.clock, self.clock.sleep)
        self.at: StreamOffset | None = None

    def _nothing_comes(self, seconds: float) -> bool:
        self.clock.now += seconds
        return False

    def batch(self, *, everything: bool = False) -> list[tuple[int, int, int]]:
        """(partition, start, end) of the next micro-batch."""
        start = self.at or stored(self.feed.initial())
        after = self.feed.after(start, everything=everything)
        if after is start:
            return []
        self.at = stored(after)
        return [(each.partition.partition, each.start, each.end) for each in ranges_of(start, self.at) if each.size]


def stored(offset: StreamOffset) -> StreamOffset:
    return parse_stream_offset(json.loads(json.dumps(offset.to_json())))


def test_batches_follow_each_other() -> None:
    cluster = FakeCluster({T0: 5, T1: 0})
    query = Query(cluster)
    assert query.batch() == [(0, 0, 5)]
    assert query.batch() == []
    cluster.at = {T0: 6, T1: 2, T2: 1}
    cluster.first[T2] = 0
    assert query.batch() == [(0, 5, 6), (1, 0, 2), (2, 0, 1)]
    assert query.feed.latest() == cluster.at


def test_the_sizes_that_tasks_are_cut_by_stay_with_the_batch() -> None:
    cluster = FakeCluster({T0: 100, T1: 100})
    cluster.sizes = {T0: 2999.7, T1: 0.2}
    query = Query(cluster, minPartitions="4")
    query.batch()
    assert query.at is not None
    assert query.at.record_bytes == {T0: 3000, T1: 1}
    cluster.sizes = {T0: 1.0, T1: 1.0}
    pieces = split(ranges_of(stored(query.feed.initial()), query.at), query.at.plan, query.at.record_bytes)
    assert [(piece.partition.partition, piece.size) for piece in pieces] == [(0, 33), (0, 33), (0, 34), (1, 100)]


def test_how_far_a_batch_ends_behind_the_topic() -> None:
    cluster = FakeCluster({T0: 100, T1: 10})
    cluster.sizes = {T0: 80.4, T1: 1000.0}
    query = Query(cluster, maxOffsetsPerTrigger="11")
    assert query.feed.behind() == {}
    assert query.batch() == [(0, 0, 10), (1, 0, 1)]
    assert query.feed.behind() == {
        "minOffsetsBehindLatest": "9",
        "maxOffsetsBehindLatest": "90",
        "avgOffsetsBehindLatest": "49.5",
        "estimatedTotalBytesBehindLatest": "16236",
    }


def test_the_first_batch_keeps_its_start() -> None:
    cluster = FakeCluster({T0: 5})
    query = Query(cluster)
    query.batch()
    assert query.at is not None
    later = StreamOffset({T0: 3}, is_initial=True)
    assert [(each.start, each.end) for each in ranges_of(later, query.at)] == [(0, 5)]


def test_an_idle_query_waits_and_takes_what_comes_meanwhile() -> None:
    cluster = FakeCluster({T0: 5})
    query = Query(cluster, pollTimeoutMs="500")
    query.batch()
    before, looks = query.clock.now, cluster.looks
    assert query.batch() == []
    assert query.clock.now == pytest.approx(before + 0.5)
    assert cluster.looks == looks + 1

    def arrive(seconds: float) -> bool:
        cluster.at[T0] = 7
        return True

    cluster.wait = arrive
    before = query.clock.now
    assert query.batch() == [(0, 5, 7)]
    assert query.clock.now == before


def test_what_is_wrong_or_too_little_is_not_asked_for_without_pause() -> None:
    """A broker that answers at once with an error, or with less than is waited for."""
    cluster = FakeCluster({T0: 5})
    query = Query(cluster, minOffsetsPerTrigger="10", pollTimeoutMs="500")
    query.batch()
    looks = cluster.looks
    cluster.wait = lambda seconds: True
    assert query.batch() == []
    assert 5 < cluster.looks - looks < 20


def test_a_minimum_waits_but_not_for_ever() -> None:
    cluster = FakeCluster({T0: 5})
    query = Query(cluster, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    assert query.batch() == [(0, 0, 5)]
    cluster.at[T0] = 14
    assert query.batch() == []
    cluster.at[T0] = 15
    assert query.batch() == [(0, 5, 15)]
    cluster.at[T0] = 16
    query.clock.now += 29
    assert query.batch() == []
    query.clock.now += 1
    assert query.batch() == [(0, 15, 16)]


def test_limits_and_what_lifts_them() -> None:
    cluster = FakeCluster({T0: 100, T1: 100})
    cluster.sizes = {T0: 10.0, T1: 1000.0}
    assert Query(cluster, maxOffsetsPerTrigger="20").batch() == [(0, 0, 10), (1, 0, 10)]
    assert Query(cluster, maxBytesPerTrigger="10100").batch() == [(0, 0, 10), (1, 0, 10)]
    assert Query(cluster, maxBytesPerTrigger="20200", maxOffsetsPerTrigger="20").batch() == [(0, 0, 10), (1, 0, 10)]
    assert Query(cluster, maxOffsetsPerTrigger="20").batch(everything=True) == [(0, 0, 100), (1, 0, 100)]


def test_available_now_ends_where_it_began() -> None:
    cluster = FakeCluster({T0: 10})
    query = Query(cluster, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    query.feed.freeze()
    assert query.batch() == [(0, 0, 6)]
    cluster.at = {T0: 99, T1: 5}
    assert query.batch() == [(0, 6, 10)]
    before = query.clock.now
    assert query.batch() == []
    assert query.clock.now == before


def test_a_topic_made_again() -> None:
    cluster = FakeCluster({T0: 5, T1: 5})
    query = Query(cluster)
    query.batch()
    cluster.ids, cluster.at = {"t": "id-2"}, {T0: 9, T1: 0}
    with pytest.raises(DataLoss, match=r"topic t was deleted and made again \(its id was id-1, now id-2\)"):
        query.batch()


def test_a_topic_made_again_is_read_from_its_beginning_once() -> None:
    cluster = FakeCluster({T0: 5, T1: 5})
    query = Query(cluster, onDataLoss="warn")
    query.batch()
    cluster.ids, cluster.at = {"t": "id-2"}, {T0: 0, T1: 0}
    assert query.batch() == []
    assert query.at is not None
    assert query.at.ids == {"t": "id-2"}
    cluster.at = {T0: 9, T1: 0}
    assert query.batch() == [(0, 0, 9)]


def test_a_replay_does_not_read_another_topic() -> None:
    """The query stopped in the middle of a batch, and its topic was made again."""
    cluster = FakeCluster({T0: 5})
    first = Query(cluster)
    start = stored(first.feed.initial())
    end = stored(first.feed.after(start))
    assert [each.size for each in first.feed.to_read(start, end)] == [5]
    assert [each.size for each in Query(cluster).feed.to_read(start, end)] == [5]
    for ids in ({"t": "id-2"}, {}):
        cluster.ids = ids
        with pytest.raises(DataLoss, match=r"5 offsets are lost \(t-0, offsets 0 to 4\): they were to be read"):
            Query(cluster).feed.to_read(start, end)
        assert Query(cluster, onDataLoss="warn").feed.to_read(start, end) == []


def test_an_end_that_moves_back_for_a_moment_is_no_loss() -> None:
    cluster = FakeCluster({T0: 5})
    query = Query(cluster)
    query.batch()
    cluster.at[T0] = 3

    def recover() -> None:
        cluster.at[T0] = 8

    query.clock.on_sleep = recover
    assert query.batch() == [(0, 5, 8)]


def test_an_end_that_moves_back_for_good(caplog: pytest.LogCaptureFixture) -> None:
    for option in ("fail", "warn"):
        cluster = FakeCluster({T0: 5})
        query = Query(cluster, onDataLoss=option)
        query.batch()
        cluster.at[T0] = 3
        if option == "fail":
            with pytest.raises(DataLoss, match=r"2 offsets are lost \(t-0, offsets 3 to 4\): the log ends before"):
                query.batch()
        else:
            with caplog.at_level(logging.WARNING):
                assert query.batch() == []
            assert "2 offsets are lost (t-0, offsets 3 to 4)" in caplog.text
            cluster.at[T0] = 4
            assert query.batch() == [(0, 3, 4)]


def cut(on_data_loss: str) -> tuple[FakeCluster, Query]:
    """A query has read up to 10 in epoch 3; the leader of epoch 5 had no more than 8 records of it, and has 12 now."""
    cluster = FakeCluster({T0: 10, T1: 4})
    cluster.epochs = {T0: 3, T1: 3}
    query = Query(cluster, onDataLoss=on_data_loss, pollTimeoutMs="0")
    assert query.batch() == [(0, 0, 10), (1, 0, 4)]
    cluster.at[T0], cluster.epochs = 12, {T0: 5, T1: 4}
    cluster.epoch_ends = {(T0, 3): 8, (T1, 3): 4}
    return cluster, query


def test_a_log_that_was_cut_and_has_grown_again() -> None:
    _, query = cut("fail")
    with pytest.raises(DataLoss, match=r"2 offsets are lost \(t-0, offsets 8 to 9\): they were read, and a new leader"):
        query.batch()


def test_a_log_that_was_cut_is_read_from_there_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster, query = cut("warn")
    assert query.batch() == [(0, 8, 12)]
    assert "t-0, offsets 8 to 9" in caplog.text
    assert query.batch() == []
    cluster.at[T0] = 13
    assert query.batch() == [(0, 12, 13)]


def test_a_new_leader_that_has_all_is_asked_once() -> None:
    cluster, query = cut("fail")
    cluster.epoch_ends[T0, 3] = 10
    cluster.at[T0] = 10
    for _ in range(3):
        assert query.batch() == []
    assert cluster.asked_epochs == [{T0: 3, T1: 3}]
    cluster.at[T0] = 11
    assert query.batch() == [(0, 10, 11)]
    assert query.at is not None
    assert query.at.epochs == {T0: 5, T1: 4}


def test_partitions_that_are_gone() -> None:
    cluster = FakeCluster({T0: 5, T1: 5})
    query = Query(cluster)
    query.batch()
    del cluster.at[T1]
    with pytest.raises(DataLoss, match="t-1 is no longer there"):
        query.batch()
    query = Query(cluster := FakeCluster({T0: 5, T1: 5}), onDataLoss="skip")
    query.batch()
    del cluster.at[T1]
    assert query.batch() == []
    assert query.at is not None
    assert set(query.at.offsets) == {T0}


def test_offsets_for_lag_are_those_of_finished_batches() -> None:
    cluster = FakeCluster({T0: 5})
    cluster.epochs = {T0: 7}
    query = Query(cluster, groupIdForLag="g")
    query.batch()
    assert cluster.committed == []
    query.batch()
    query.batch()
    assert cluster.committed == [{T0: LogEnd(5, 7)}], "with the epoch of the batch's end"
    cluster.refuses, cluster.at[T0] = True, 6
    query.batch()
    cluster.at[T0] = 7
    assert query.batch() == [(0, 6, 7)]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_each_offset_is_read_once_whatever_happens(data: st.DataObject) -> None:
    """Partitions grow and are added; batches are replayed after crashes, with other options; in the end each offset was
    in exactly one batch that counts."""
    cluster = FakeCluster({T0: data.draw(st.integers(0, 20))})
    log: list[tuple[StreamOffset, StreamOffset]] = []
    start: StreamOffset | None = None
    for _ in range(data.draw(st.integers(1, 12))):
        for where in (T0, T1, T2):
            if where in cluster.at or data.draw(st.booleans()):
                cluster.at[where] = cluster.at.get(where, 0) + data.draw(st.integers(0, 9))
        options = {"maxOffsetsPerTrigger": str(data.draw(st.integers(1, 30)))} if data.draw(st.booleans()) else {}
        query = Query(cluster, pollTimeoutMs="0", **options)
        if data.draw(st.booleans()):
            query.feed.freeze()
        begin = start or stored(query.feed.initial())
        after = query.feed.after(begin)
        if after is not begin:
            if start is None and data.draw(st.booleans()):
                begin = stored(query.feed.initial())  # a crash: Spark asks again where to begin, and keeps the end
            start = stored(after)
            log.append((begin, start))
    query = Query(cluster, pollTimeoutMs="0")
    begin = start or stored(query.feed.initial())
    log.append((begin, query.feed.after(begin)))
    read = [(r.partition, offset) for pair in log for r in ranges_of(*pair) for offset in range(r.start, r.end)]
    assert sorted(read) == sorted((where, offset) for where, end in cluster.at.items() for offset in range(end))
