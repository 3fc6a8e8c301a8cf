"""Named timers of a coordinator shard on a clock that the test moves."""

from collections.abc import Callable
from typing import Any, cast

from barnabas.coordinator.coordinator_shard import CoordinatorResult
from barnabas.coordinator.timers import SchedulerTimer

Operation = Callable[[], CoordinatorResult[Any, Any]]


class Handle:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandScheduler:
    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(Handle(self.now + delay_s, callback))
        return self.handles[-1]

    def advance(self, now: float) -> None:
        self.now = now
        due = [handle for handle in self.handles if handle.at <= now and not handle.cancelled]
        self.handles = [handle for handle in self.handles if handle.at > now]
        for handle in due:
            handle.callback()


class Rig:
    def __init__(self) -> None:
        self.scheduler = HandScheduler()
        self.ran: list[str] = []
        self.timer = SchedulerTimer(self.scheduler, lambda operation: self.ran.append(cast(str, operation)))

    def schedule(self, key: str, delay_ms: int, name: str) -> None:
        """The operations are names: the timer hands them on and never calls them."""
        self.timer.schedule(key, delay_ms, cast(Operation, name))


def test_a_timer_runs_once_at_its_deadline() -> None:
    rig = Rig()
    rig.schedule("a", 1000, "first")
    rig.scheduler.advance(0.9)
    assert rig.ran == []
    rig.scheduler.advance(1.0)
    rig.scheduler.advance(5.0)
    assert rig.ran == ["first"]


def test_a_postponed_timer_keeps_the_timer_of_the_loop() -> None:
    rig = Rig()
    rig.schedule("a", 1000, "first")
    rig.scheduler.now = 0.5
    rig.schedule("a", 1000, "second")
    assert len(rig.scheduler.handles) == 1
    rig.scheduler.advance(1.0)
    assert rig.ran == []
    rig.scheduler.advance(1.5)
    assert rig.ran == ["second"]


def test_an_earlier_deadline_replaces_the_timer_of_the_loop() -> None:
    rig = Rig()
    rig.schedule("a", 1000, "late")
    rig.schedule("a", 100, "early")
    rig.scheduler.advance(0.1)
    rig.scheduler.advance(2.0)
    assert rig.ran == ["early"]


def test_cancelled_timers_do_not_run() -> None:
    rig = Rig()
    for key in "abc":
        rig.schedule(key, 1000, key)
    rig.timer.cancel("a")
    rig.timer.cancel("unknown")
    rig.timer.close()
    assert all(handle.cancelled for handle in rig.scheduler.handles)
    rig.scheduler.advance(2.0)
    assert rig.ran == []
