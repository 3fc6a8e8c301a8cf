"""Requests that meet a partition while it is loaded."""

import pytest

from barnabas.coordinator.coordinator_shard import CoordinatorResult
from barnabas.coordinator.load_waiters import LOAD_WAIT_MAX_S
from barnabas.errors import CoordinatorLoadInProgress, NotCoordinator, UnknownServerError
from coordinator.group_rig import Later
from coordinator.runtime_rig import Sum, World, broken
from coordinator.runtime_rig import world as world


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

    def test_the_brokers_own_work_waits_to_the_end(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody would do it again."""
        assert world.runtime._load_handle is not None
        world.runtime._load_handle.cancel()  # a log that is long
        own = [Later() for _ in range(3)]
        with monkeypatch.context() as patched:
            patched.setattr("barnabas.coordinator.load_waiters.LOAD_WAITERS_MAX", 2)
            for _ in range(2):
                world.add(4)
            for later in own:
                world.runtime.run(0, lambda machine: machine.add(5), later, is_own=True)
        assert isinstance(own.pop().value, CoordinatorLoadInProgress), "it has its bound, too"
        world.scheduler.advance(10 * LOAD_WAIT_MAX_S)
        world.is_in_doubt = True
        late = world.add(6)
        assert not any(later.done for later in own)
        world.runtime._load_chunk()
        assert [later.value for later in own] == [11, 16], "before the requests that came after it"
        assert isinstance(late.value, NotCoordinator)

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

    def test_an_end_marker_is_to_be_sent_again(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The markers of other transactions, behind it in its request and on its connection, must not wait."""
        ended: list[tuple[int, bool]] = []
        monkeypatch.setattr(Sum, "replay_end_transaction", lambda self, *arguments: ended.append(arguments))

        def end() -> Later:
            later = Later()
            world.runtime.end_transaction(
                0, producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=1, reply=later
            )
            return later

        assert isinstance(end().value, CoordinatorLoadInProgress)
        world.scheduler.advance(0)
        assert (ended, world.log.ends) == ([], {0: 3})
        assert (end().value, ended, world.log.ends) == (None, [(7, True)], {0: 4})
