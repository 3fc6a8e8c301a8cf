"""The coordinator runtime alone, with a machine that adds numbers up."""

from typing import Any

import pytest

from barnabas.coordinator.coordinator_shard import NOTHING, CoordinatorResult
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaStorageError,
    NotCoordinator,
    RecordListTooLarge,
    UnknownServerError,
)
from coordinator.group_rig import Later, failing
from coordinator.runtime_rig import Sum, World, broken
from coordinator.runtime_rig import world as world


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


def three_to_be_read() -> World:
    """Three partitions with a number each, and they are to be read."""
    world = World()
    for partition in range(3):
        world.runtime.load(partition, 1)
        world.add(partition + 1, partition=partition)
    world.runtime = world.make()
    for partition in range(3):
        world.runtime.load(partition, 2)
    return world


def test_loading_goes_in_steps_and_a_request_moves_its_partition_to_the_front() -> None:
    world = three_to_be_read()
    assert not world.add(1, partition=2).done
    world.scheduler.advance(0)
    order = [machine.partition for machine in world.machines[3:]]
    assert order == [2, 0, 1]


def test_a_partition_whose_batch_is_damaged_is_loaded_again_by_an_election(world: World) -> None:
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


class TestFailedLoads:
    @pytest.fixture
    def world(self) -> World:
        return three_to_be_read()

    @pytest.mark.parametrize("method", ["read", "log_range"])
    def test_they_are_tried_again_until_one_succeeds(
        self, world: World, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A disk that fails for a while is no reason to wait for an election, which may never come."""
        times: list[float] = []

        def unreadable(*arguments: object) -> bytes:
            times.append(world.scheduler.now - start)
            raise KafkaStorageError("Too many open files")

        start = world.scheduler.now
        world.runtime.unload(1)
        world.runtime.unload(2)
        with monkeypatch.context() as patched:
            patched.setattr(world.log, method, unreadable)
            world.runtime.load(0, 3)
            waiting = world.add(1)
            world.scheduler.advance(0.5)
            assert isinstance(waiting.value, NotCoordinator)
            world.scheduler.advance(99.5)
        assert times == pytest.approx([0, 1, 3, 7, 15, 31, 61, 91])
        assert isinstance(world.add(1).value, NotCoordinator)
        world.scheduler.advance(30)
        assert world.add(1).value == 2
        assert world.scheduler.pending() == 0
        failures = [record for record in caplog.records if record.levelname == "ERROR"]
        assert [record.getMessage() for record in failures] == [
            "Loading __sums-0 failed, and is tried again until it succeeds: Too many open files"
        ]
        assert failures[0].exc_info is None

    @pytest.mark.parametrize("moment", ["while it is read", "after a failure"])
    def test_the_brokers_own_work_waits_for_the_load_that_succeeds(
        self, world: World, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such as the removal of a deleted topic's offsets, which nobody asks for again."""
        own, after = Later(), Later()
        with monkeypatch.context() as patched:
            patched.setattr(world.log, "read", broken)
            if moment == "after a failure":
                world.scheduler.advance(0.5)
            world.runtime.run(0, lambda machine: machine.add(10), own, is_own=True)
            world.scheduler.advance(2)
            assert not own.done
        world.scheduler.advance(10)
        assert own.value == 11
        world.runtime.load(0, 7)
        world.runtime.run(0, lambda machine: machine.add(1), after, is_own=True)
        world.runtime.unload(0)
        assert isinstance(after.value, NotCoordinator), "nothing is loaded here any more"

    @pytest.mark.parametrize("moment", ["while it is read", "after a failure"])
    def test_the_brokers_own_work_waits_over_another_leader_epoch_of_this_broker(
        self, world: World, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = Later()
        with monkeypatch.context() as patched:
            patched.setattr(world.log, "read", broken)
            if moment == "after a failure":
                world.scheduler.advance(0.5)
            world.runtime.run(0, lambda machine: machine.add(10), own, is_own=True)
        world.runtime.load(0, 9)
        world.scheduler.advance(10)
        assert own.value == 11

    def test_the_brokers_own_work_is_done_also_where_nothing_is_left_to_read(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = Later()
        with monkeypatch.context() as patched:
            patched.setattr(world.log, "read", broken)
            world.scheduler.advance(0.5)
            world.runtime.run(0, lambda machine: machine.add(10), own, is_own=True)
            patched.setattr(world.log, "log_range", lambda partition: (3, 3))
            world.scheduler.advance(10)
        assert own.value == 10

    def test_the_next_leader_ends_the_tries(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(world.log, "read", broken)
        world.scheduler.advance(2)
        for partition in range(3):
            world.runtime.unload(partition)
        assert world.scheduler.pending() == 0
        assert world.runtime.partitions() == []

    @pytest.mark.parametrize(("machine", "method"), [(Sum, "loaded"), (Sum, "replay"), (World, "read")])
    def test_a_bug_in_one_does_not_hold_up_the_others(
        self,
        world: World,
        machine: type,
        method: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        place = world.log if machine is World else machine
        whole = getattr(place, method)

        def broken_at_first(*arguments: Any) -> Any:
            monkeypatch.setattr(place, method, whole)
            raise RuntimeError("a bug")

        monkeypatch.setattr(place, method, broken_at_first)
        waiting = [world.add(1, partition=partition) for partition in range(3)]
        world.scheduler.advance(0)
        assert isinstance(waiting[2].value, NotCoordinator), "the last to be asked for is loaded first"
        assert [later.value for later in waiting[:2]] == [2, 3]
        (failure,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert failure.exc_info is not None
        world.scheduler.advance(1)
        assert world.add(1, partition=2).value == 4


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


def test_a_broker_that_may_be_replaced_shows_and_changes_nothing() -> None:
    world = World()
    world.runtime.load(0, 1)
    assert world.add(1).value == 1
    world.is_in_doubt = True
    assert isinstance(world.add(1).value, NotCoordinator)
    assert isinstance(world.run(lambda machine: machine.add()).value, NotCoordinator)
    own = Later()
    world.runtime.run(0, lambda machine: machine.add(1), own, is_own=True)
    assert own.value == 2, "its own work is done, and counts if it is committed"
    world.is_in_doubt = False
    assert world.add(1).value == 3
