"""Runs plain functions periodically on the event loop, or in a thread if they block."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from barnabas.broker.process.failure_log import FailureLog

__all__ = ["Scheduler"]

_DELAY_MAX_S: Final = 10 * 365 * 86_400
"""Kafka's "never" is 2^63-1 ms, which is more than an event loop can count."""


class Scheduler:
    """Runs each task again `interval_ms` after it has ended, so that runs of a slow task never pile up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor, failures: FailureLog) -> None:
        self._loop = loop
        self._executor = executor
        self._failures = failures
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False

    def every(
        self,
        interval_ms: int,
        name: str,
        task: Callable[[], object],
        *,
        thread: bool = False,
        first_ms: int | None = None,
    ) -> None:
        """Runs `task` every `interval_ms`, the first time after `first_ms`.

        `thread` says that the task blocks and is safe to run in a thread.
        """
        if not self._stopped:
            delay_ms = interval_ms if first_ms is None else first_ms
            self._timers[name] = self._loop.call_later(
                min(delay_ms / 1000, _DELAY_MAX_S), self._run, interval_ms, name, task, thread
            )

    def _run(self, interval_ms: int, name: str, task: Callable[[], object], thread: bool) -> None:
        if thread:
            future = self._loop.run_in_executor(self._executor, self._guarded, name, task)
            future.add_done_callback(lambda _: self.every(interval_ms, name, task, thread=True))
            return
        self._guarded(name, task)
        self.every(interval_ms, name, task)

    def _guarded(self, name: str, task: Callable[[], object]) -> None:
        """Runs the task and reports its failure, so that it runs again after the interval."""
        try:
            task()
        except Exception as error:
            self._failures.report(f"the periodic task {name!r}", error)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
