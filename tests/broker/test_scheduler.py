"""Scheduler: periodic tasks on the event loop and in threads."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.scheduler import Scheduler
from barnabas.clock import SYSTEM_CLOCK


def scheduled(scenario: Any) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            failures = FailureLog(logging.getLogger("barnabas.test"), SYSTEM_CLOCK)
            scheduler = Scheduler(asyncio.get_running_loop(), executor, failures)
            await asyncio.wait_for(scenario(scheduler), 60)
            scheduler.stop()

    asyncio.run(main())


@pytest.mark.parametrize("thread", [False, True])
def test_tasks_run_again_and_again_even_if_they_fail(thread: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scheduler: Scheduler) -> None:
        runs = 0
        enough = asyncio.Event()
        loop = asyncio.get_running_loop()

        def task() -> None:
            nonlocal runs
            runs += 1
            if runs == 3:
                loop.call_soon_threadsafe(enough.set)
            raise ValueError("no luck")

        scheduler.every(1, "a task", task, thread=thread)
        await enough.wait()

    scheduled(scenario)
    assert "the periodic task 'a task' failed" in caplog.text


def test_the_first_run_has_a_delay_of_its_own() -> None:
    async def scenario(scheduler: Scheduler) -> None:
        ran = asyncio.Event()
        scheduler.every(3_600_000, "soon", ran.set, first_ms=1)
        await ran.wait()

    scheduled(scenario)


def test_never_is_a_time_that_a_loop_can_count() -> None:
    async def scenario(scheduler: Scheduler) -> None:
        scheduler.every(2**63 - 1, "never", lambda: None)

    scheduled(scenario)


def test_nothing_runs_after_the_end() -> None:
    async def scenario(scheduler: Scheduler) -> None:
        runs: list[int] = []
        scheduler.every(1, "late", lambda: runs.append(1), first_ms=5)
        scheduler.stop()
        scheduler.every(1, "later", lambda: runs.append(2))
        await asyncio.sleep(0.02)
        assert runs == []

    scheduled(scenario)
