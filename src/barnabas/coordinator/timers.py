"""The named timers of a coordinator shard, on the clock of the runtime."""

from collections.abc import Callable
from typing import Any, Protocol

from barnabas.coordinator.coordinator_shard import CoordinatorResult

__all__ = ["Scheduler", "SchedulerTimer", "TimerHandle"]


class TimerHandle(Protocol):
    """A timer of the event loop, like asyncio's."""

    def cancel(self) -> None:
        """Prevents the callback from running."""


class Scheduler(Protocol):
    """A clock with timers: the event loop, or a virtual clock in tests."""

    def monotonic(self) -> float:
        """Returns the time in seconds."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls the callback once after `delay_s` seconds, never within this call."""


class _Timer:
    __slots__ = ("deadline", "handle", "operation", "wakes")

    def __init__(self, deadline: float, operation: Callable[[], CoordinatorResult[Any, Any]], wakes: float) -> None:
        self.deadline = deadline
        self.operation = operation
        self.wakes = wakes
        self.handle: TimerHandle | None = None


class SchedulerTimer:
    """Timers by key.

    To postpone a timer, as every heartbeat does, only stores the new deadline: the timer of the loop stays, and is set
    again for the rest of the time when it fires.
    """

    def __init__(self, scheduler: Scheduler, run: Callable[[Callable[[], CoordinatorResult[Any, Any]]], None]) -> None:
        self._scheduler = scheduler
        self._run = run
        self._timers: dict[str, _Timer] = {}

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], CoordinatorResult[Any, Any]]) -> None:
        deadline = self._scheduler.monotonic() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is not None and timer.wakes <= deadline:
            timer.deadline = deadline
            timer.operation = operation
            return
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()
        self._timers[key] = self._arm(key, _Timer(deadline, operation, deadline), delay_ms / 1000)

    def _arm(self, key: str, timer: _Timer, delay_s: float) -> _Timer:
        timer.handle = self._scheduler.call_later(delay_s, lambda: self._wake(key, timer))
        return timer

    def _wake(self, key: str, timer: _Timer) -> None:
        if self._timers.get(key) is not timer:
            return
        left = timer.deadline - self._scheduler.monotonic()
        if left > 0.001:
            timer.wakes = timer.deadline
            self._arm(key, timer, left)
            return
        del self._timers[key]
        self._run(timer.operation)

    def cancel(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def close(self) -> None:
        for key in list(self._timers):
            self.cancel(key)
