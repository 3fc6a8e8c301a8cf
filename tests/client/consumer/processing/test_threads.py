"""The pool of threads of `process`, without a consumer."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client.consumer.processing.records_in_progress import RecordsInProgress
from barnabas.client.consumer.processing.threads import ThreadPool
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.connection.flow import result_of
from barnabas.records.compiled.consumer_records import ConsumerRecord, RecordOrigin
from barnabas.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 30.0


def record(offset: int, key: Any = None, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord(RecordOrigin("t", partition, 3, 0), offset, 0, key, b"", ())


MakePool = Callable[..., ThreadPool]


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def make_pool(woken: threading.Event) -> Iterator[MakePool]:
    pools: list[ThreadPool] = []

    def make(
        handler: Callable[[Any], Any], count: int = 4, limit: int = 100, on_error: Any = None, closing: bool = False
    ) -> ThreadPool:
        records = RecordsInProgress("key", limit, lambda _: None)
        pools.append(ThreadPool(records, handler, on_error, count, wake=woken.set, is_closing=lambda: closing))
        return pools[-1]

    yield make
    for pool in pools:
        pool.stop()


def finish(pool: ThreadPool, seconds: float = LONG_S, partitions: Any = None) -> int:
    return result_of(pool.finish(seconds, partitions))


def test_as_many_records_are_handled_at_a_time_as_there_are_threads(make_pool: MakePool) -> None:
    barrier = threading.Barrier(4)
    pool = make_pool(lambda _: barrier.wait(LONG_S))
    pool.add([record(offset) for offset in range(8)])
    assert finish(pool, partitions=[P0]) == 0
    assert pool.failure is None


def test_records_of_a_key_are_handled_in_order(make_pool: MakePool) -> None:
    seen: list[tuple[bytes, int]] = []
    pool = make_pool(lambda each: seen.append((each.key, each.offset)))
    pool.add([record(offset, b"ab"[offset % 2 :][:1]) for offset in range(100)])
    assert finish(pool, partitions=[P0]) == 0
    for key in (b"a", b"b"):
        offsets = [offset for of, offset in seen if of == key]
        assert offsets == sorted(offsets)
        assert len(offsets) == 50


def test_offsets_stop_at_a_record_in_progress(make_pool: MakePool) -> None:
    go_on = threading.Event()
    pool = make_pool(lambda each: go_on.wait(LONG_S) if each.offset == 2 else None, count=2)
    pool.add([record(offset, b"%d" % offset) for offset in range(4)])
    read = {P0: OffsetAndMetadata(4, "", 3)}
    assert finish(pool, 0.2, [P0]) == 1
    assert pool.offsets(read)[P0].offset == 2
    go_on.set()
    assert finish(pool, partitions=[P0]) == 0
    assert pool.offsets(read) == read


def test_an_exception_stops_the_pool_and_wakes_the_dispatcher(make_pool: MakePool, woken: threading.Event) -> None:
    pool = make_pool(lambda each: 1 // (each.offset - 1), count=1)
    pool.add([record(offset) for offset in range(-1, 4)])
    assert woken.wait(LONG_S)
    assert isinstance(pool.failure, ZeroDivisionError)
    assert any("t-0, offset 1" in note for note in pool.failure.__notes__)
    assert finish(pool) == 0
    assert finish(pool, 0.0, [P0]) == 3, "the failed record and those behind it are not done"


def test_a_record_that_on_error_takes_is_done(make_pool: MakePool) -> None:
    failed: list[tuple[int, str]] = []
    pool = make_pool(
        lambda each: 1 // each.offset, on_error=lambda each, error: failed.append((each.offset, str(error)))
    )
    pool.add([record(offset) for offset in range(4)])
    assert finish(pool, partitions=[P0]) == 0
    assert pool.failure is None
    assert failed == [(0, "integer division or modulo by zero")]


def test_there_is_room_again_when_enough_records_are_done(make_pool: MakePool, woken: threading.Event) -> None:
    go_on = threading.Event()
    pool = make_pool(lambda _: go_on.wait(LONG_S), limit=10)
    assert pool.room == 10
    pool.add([record(offset) for offset in range(10)])
    assert pool.room == 0
    assert not woken.is_set()
    go_on.set()
    assert woken.wait(LONG_S), "the dispatcher waits for room"
    assert pool.room > 5


def test_waiting_records_of_a_partition_are_dropped(make_pool: MakePool) -> None:
    go_on, seen = threading.Event(), []

    def handle(each: Any) -> None:
        seen.append((each.partition, each.offset))
        go_on.wait(LONG_S)

    pool = make_pool(handle, count=1)
    pool.add([record(offset) for offset in range(3)])
    pool.add([record(offset, partition=1) for offset in range(2)])
    while not seen:
        go_on.wait(0.001)
    pool.drop_waiting([P0])
    go_on.set()
    assert finish(pool, partitions=[P0, P1]) == 0
    assert seen == [(0, 0), (1, 0), (1, 1)]


def test_a_close_does_not_wait_for_a_partition(make_pool: MakePool) -> None:
    go_on = threading.Event()
    pool = make_pool(lambda _: go_on.wait(LONG_S), closing=True)
    pool.add([record(0)])
    assert finish(pool, LONG_S, [P0]) == 1
    go_on.set()


def test_a_stopped_pool_begins_no_record(make_pool: MakePool) -> None:
    seen: list[int] = []
    pool = make_pool(lambda each: seen.append(each.offset))
    pool.stop()
    pool.add([record(0)])
    assert finish(pool, 0.05, [P0]) == 1
    assert seen == []
