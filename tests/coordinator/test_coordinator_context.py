"""Answers that wait for the high watermark of their partition."""

from typing import Any

from barnabas.coordinator.coordinator_shard import CoordinatorResult
from barnabas.errors import NotCoordinator, RequestTimedOut
from coordinator.runtime_rig import World
from coordinator.runtime_rig import world as world


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
