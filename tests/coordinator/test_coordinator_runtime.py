"""The coordinator runtime alone, with a machine that adds numbers up."""

import logging
from typing import Any

import pytest

from barnabas.coordinator.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.coordinator_shard import NOTHING, CoordinatorResult, CoordinatorTimer
from barnabas.coordinator.load_waiters import LOAD_WAIT_MAX_S
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    InvalidRequest,
    KafkaStorageError,
    NotCoordinator,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
)
from coordinator.group_rig import Later, MemoryLog, VirtualScheduler, failing


class Numbers:
    """Codec: the value is the number's text; no two keys are the same, but for 7."""

    def __init__(self) -> None:
        self.count = 0

    def encode(self, record: int) -> tuple[bytes, bytes | None]:
        self.count += 1
        return b"seven" if record == 7 else str(self.count).encode(), str(record).encode()

    def decode(self, key: bytes, value: bytes | None) -> int | None:
        if value == b"13":
            raise CorruptMessage("unlucky")
        return None if value is None else int(value)


class Sum:
    """The state machine."""

    def __init__(self, partition: int, timers: CoordinatorTimer) -> None:
        self.partition = partition
        self.timers = timers
        self.total = 0
        self.offsets: list[int] = []
        self.is_loaded = False
        self.is_unloaded = False

    def replay(self, offset: int, producer_id: int, record: int) -> None:
        self.total += record
        self.offsets.append(offset)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        raise AssertionError

    def loaded(self) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_unloaded = True

    def add(self, *numbers: int, **options: Any) -> CoordinatorResult[int, int]:
        return CoordinatorResult(numbers, self.total + sum(numbers), **options)


class World:
    def __init__(self, **options: Any) -> None:
        self.scheduler = VirtualScheduler()
        self.log = MemoryLog()
        self.codec = Numbers()
        self.machines: list[Sum] = []
        self.runtime: CoordinatorRuntime[Sum, int] = self.make()

    def make(self) -> CoordinatorRuntime[Sum, int]:
        def machine(partition: int, timers: CoordinatorTimer) -> Sum:
            self.machines.append(Sum(partition, timers))
            return self.machines[-1]

        return CoordinatorRuntime(
            topic="__sums",
            log=self.log,
            serde=self.codec,
            make_shard=machine,
            scheduler=self.scheduler,
            wall_ms=self.scheduler.wall_ms,
            commit_timeout_ms=5000,
            logger=logging.getLogger("test"),
        )

    def run(self, operation: Any, partition: int = 0) -> Later:
        later = Later()
        self.runtime.run(partition, operation, later)
        return later

    def add(self, *numbers: int, partition: int = 0, **options: Any) -> Later:
        return self.run(lambda machine: machine.add(*numbers, **options), partition)


@pytest.fixture
def world() -> World:
    world = World()
    world.runtime.load(0, 1)
    return world


def test_records_are_appended_replayed_and_answered(world: World) -> None:
    assert world.add(1, 2, 3).value == 6
    assert world.add(4).value == 10
    assert world.log.appends == 2
    assert world.machines[0].offsets == [0, 1, 2, 3]
    assert world.machines[0].is_loaded


def test_a_partition_that_is_not_led(world: World) -> None:
    assert isinstance(world.add(1, partition=5).value, NotCoordinator)


def test_empty_partitions_cost_nothing() -> None:
    world = World()
    for partition in range(50):
        world.runtime.load(partition, 1)
    assert (world.machines, world.log.reads, world.scheduler.pending()) == ([], 0, 0)
    assert world.runtime.used_partitions() == []


def test_the_operations_own_error_is_the_answer(world: World) -> None:
    def refuse(machine: Sum) -> CoordinatorResult[int, int]:
        raise InvalidRequest("no")

    assert isinstance(world.run(refuse).value, InvalidRequest)


def test_a_failed_append_changes_nothing_and_is_told(world: World) -> None:
    seen: list[Any] = []
    world.log.fail = failing()
    assert isinstance(world.add(1, done=seen.append).value, KafkaStorageError)
    assert world.machines[0].total == 0
    assert isinstance(seen[0], KafkaStorageError)
    world.log.fail = None
    assert world.add(2).value == 2


def broken(*_: object) -> CoordinatorResult[int, int]:
    raise RuntimeError("a bug")


def test_a_bug_in_an_operation_is_told_too(world: World) -> None:
    """The caller may be a callback whose error would otherwise be lost."""
    assert world.run(broken).value.message == "RuntimeError: a bug"
    assert world.add(1).value == 1


def test_a_bug_in_a_write_is_told_and_holds_up_no_other_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(world.codec, "encode", broken)
        assert isinstance(world.add(1, done=seen.append).value, UnknownServerError)
    assert isinstance(seen[0], UnknownServerError)
    world.log.replicated = False
    later = world.add(2)
    world.runtime.on_high_watermark(0, world.log.commit(0))
    assert later.value == 2


def test_an_atomic_write_that_is_too_large_fails_and_others_are_split(world: World) -> None:
    world.log.max_bytes = 200
    numbers = tuple(range(100, 140))
    assert isinstance(world.add(*numbers).value, RecordListTooLarge)
    assert world.log.appends == 0
    assert world.add(*numbers, atomic=False).value == sum(numbers)
    assert world.log.appends > 3
    assert world.machines[0].offsets == list(range(40))


def test_answers_wait_for_the_high_watermark_in_order(world: World) -> None:
    world.log.replicated = False
    done: list[int] = []
    first = world.add(1, done=lambda error: done.append(1))
    second = world.add(2, done=lambda error: done.append(2))
    looking = world.run(lambda machine: CoordinatorResult(response=machine.total))
    assert [first.done, second.done, looking.done] == [False] * 3
    world.runtime.on_high_watermark(0, 1)
    assert first.value == 1
    assert not looking.done, "it saw what is not committed yet"
    world.runtime.on_high_watermark(0, 2)
    assert (second.value, looking.value, done) == (3, 3, [1, 2])
    assert world.scheduler.pending() == 0


def test_an_answer_gives_up_but_the_write_may_still_count(world: World) -> None:
    world.log.replicated = False
    done: list[Any] = []
    waiting = world.add(1, done=done.append)
    world.scheduler.advance(5.1)
    assert isinstance(waiting.value, RequestTimedOut)
    assert done == []
    world.runtime.on_high_watermark(0, 1)
    assert done == [None]


def test_loading_reads_the_log(world: World) -> None:
    world.add(1, 2)
    world.add(3)
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.machines[-1].is_loaded
    assert world.add(4).value == 10
    assert world.machines[-1].offsets == [0, 1, 2, 3]


def test_loading_goes_in_steps_and_a_request_moves_its_partition_to_the_front() -> None:
    world = World()
    for partition in range(3):
        world.runtime.load(partition, 1)
        world.add(partition + 1, partition=partition)
    world.runtime = world.make()
    for partition in range(3):
        world.runtime.load(partition, 2)
    assert not world.add(1, partition=2).done
    world.scheduler.advance(0)
    order = [machine.partition for machine in world.machines[3:]]
    assert order == [2, 0, 1]


class TestWhileLoading:
    @pytest.fixture
    def world(self) -> World:
        """Three numbers in the log, and it is to be read."""
        world = World()
        world.runtime.load(0, 1)
        world.add(1, 2, 3)
        world.runtime = world.make()
        world.runtime.load(0, 2)
        return world

    def test_requests_wait_and_are_served_in_order(self, world: World) -> None:
        waiting = [world.add(number) for number in (4, 5)]
        looking = world.run(lambda machine: CoordinatorResult(response=machine.total))
        assert [later.done for later in (*waiting, looking)] == [False] * 3
        world.scheduler.advance(0)
        assert [later.value for later in (*waiting, looking)] == [10, 15, 15]
        assert world.machines[-1].offsets == [0, 1, 2, 3, 4]
        assert world.scheduler.pending() == 0

    def test_who_would_not_wait_is_told_at_once(self, world: World) -> None:
        later = Later()
        world.runtime.run(0, lambda machine: machine.add(4), later, waits=False)
        assert isinstance(later.value, CoordinatorLoadInProgress)
        world.scheduler.advance(10)
        assert world.machines[-1].total == 6

    def test_nobody_waits_for_long(self, world: World) -> None:
        assert world.runtime._load_handle is not None
        world.runtime._load_handle.cancel()  # a log that is never read to its end
        first = world.add(4)
        world.scheduler.advance(LOAD_WAIT_MAX_S - 1)
        second = world.add(5)
        world.scheduler.advance(1)
        assert isinstance(first.value, CoordinatorLoadInProgress)
        assert not second.done
        world.scheduler.advance(LOAD_WAIT_MAX_S)
        assert isinstance(second.value, CoordinatorLoadInProgress)

    def test_a_crowd_is_sent_away(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas.coordinator.load_waiters.LOAD_WAITERS_MAX", 2)
        waiting = [world.add(4), world.add(5)]
        assert isinstance(world.add(6).value, CoordinatorLoadInProgress)
        world.scheduler.advance(0)
        assert [later.value for later in waiting] == [10, 15]

    def test_resigning_answers_those_who_wait(self, world: World) -> None:
        waiting = world.add(4)
        world.runtime.unload(0, 3)
        assert isinstance(waiting.value, NotCoordinator)
        assert world.scheduler.pending() == 1, "the load's own step, which finds nothing to do"
        world.scheduler.advance(10)
        assert world.log.ends == {0: 3}

    def test_a_log_that_cannot_be_read_answers_those_who_wait(self, world: World) -> None:
        world.log.batches[0][0] = world.log.batches[0][0][:-1] + b"?"
        waiting = world.add(4)
        world.scheduler.advance(0)
        assert isinstance(waiting.value, NotCoordinator)

    def test_a_bug_in_one_request_is_not_the_end_of_those_behind(self, world: World) -> None:
        first, second = world.run(broken), world.add(4)
        world.scheduler.advance(0)
        assert isinstance(first.value, UnknownServerError)
        assert second.value == 10

    def test_an_end_marker_waits_too(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        ended: list[tuple[int, bool]] = []
        monkeypatch.setattr(Sum, "replay_end_transaction", lambda self, *arguments: ended.append(arguments))
        later = Later()
        world.runtime.end_transaction(
            0, producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=1, reply=later
        )
        assert not later.done
        world.scheduler.advance(0)
        assert (later.value, ended, world.log.ends) == (None, [(7, True)], {0: 4})


def test_only_the_last_record_of_a_key_is_replayed(world: World) -> None:
    world.add(1, 7, 2)
    for _ in range(50):
        world.add(7)
    world.add(3)
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.machines[-1].total == 1 + 2 + 3 + 7
    assert world.machines[-1].offsets == [0, 2, 52, 53]


def test_a_long_log_is_read_in_many_steps(world: World) -> None:
    numbers = tuple(range(100, 5100))
    world.add(*numbers)
    world.add(*numbers)
    world.runtime = world.make()
    world.log.reads = 0
    world.runtime.load(0, 2)
    world.scheduler.advance(0)
    assert world.log.reads > 1
    assert world.machines[-1].total == 2 * sum(numbers)
    assert world.machines[-1].offsets == list(range(10_000))


def test_a_damaged_record_is_left_out(world: World) -> None:
    world.add(1, 13, 5)
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.machines[-1].total == 6


def test_a_damaged_batch_fails_the_partition_until_the_next_election(world: World) -> None:
    world.add(1)
    good = world.log.batches[0][0]
    world.log.batches[0][0] = good[:-1] + bytes([good[-1] ^ 1])
    world.runtime = world.make()
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert isinstance(world.add(1).value, NotCoordinator)
    world.log.batches[0][0] = good
    world.runtime.load(0, 2)
    world.scheduler.advance(0.01)
    assert world.add(1).value == 2


def test_resigning_answers_everyone_and_stops_the_timers(world: World) -> None:
    world.log.replicated = False
    waiting = world.add(1)
    world.machines[0].timers.schedule("t", 1000, lambda: world.machines[0].add(100))
    world.runtime.unload(0, 2)
    assert isinstance(waiting.value, NotCoordinator)
    assert world.machines[0].is_unloaded
    world.scheduler.advance(10)
    assert world.log.ends == {0: 1}
    assert isinstance(world.add(1).value, NotCoordinator)


def test_older_epochs_are_not_listened_to(world: World) -> None:
    world.runtime.load(0, 5)
    world.runtime.unload(0, 4)
    world.runtime.load(0, 3)
    assert world.add(1).value == 1


class TestTimers:
    def test_an_operation_of_a_timer_is_written(self, world: World) -> None:
        world.add(1)
        machine = world.machines[0]
        machine.timers.schedule("t", 1000, lambda: machine.add(10))
        world.scheduler.advance(0.999)
        assert machine.total == 1
        world.scheduler.advance(0.002)
        assert machine.total == 11

    def test_a_timer_finds_room_when_requests_find_none(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.add(1)
        machine = world.machines[0]
        machine.timers.schedule("t", 1000, lambda: machine.add(10))
        monkeypatch.setattr("barnabas.coordinator.coordinator_runtime.PENDING_MAX", 0)
        assert isinstance(world.add(1).value, CoordinatorNotAvailable)
        world.scheduler.advance(1.001)
        assert machine.total == 11

    def test_postponing_again_and_again_keeps_one_timer(self, world: World) -> None:
        world.add(1)
        machine = world.machines[0]
        for _ in range(20):
            machine.timers.schedule("t", 1000, lambda: machine.add(10))
            world.scheduler.advance(0.5)
            assert world.scheduler.pending() == 1
        assert machine.total == 1
        world.scheduler.advance(0.6)
        assert machine.total == 11

    def test_sooner_is_sooner(self, world: World) -> None:
        world.add(1)
        timers = world.machines[0].timers
        fired: list[str] = []

        def operation(name: str) -> CoordinatorResult[int, None]:
            fired.append(name)
            return NOTHING

        timers.schedule("t", 10_000, lambda: operation("late"))
        timers.schedule("t", 100, lambda: operation("soon"))
        world.scheduler.advance(20)
        assert fired == ["soon"]

    def test_cancelled(self, world: World) -> None:
        world.add(1)
        machine = world.machines[0]
        machine.timers.schedule("t", 1000, lambda: machine.add(10))
        machine.timers.cancel("t")
        world.scheduler.advance(5)
        assert machine.total == 1
