"""The ends of other brokers, told on the event loop: of processes, and of brokers of this process."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.cluster import liveness
from barnabas.broker.cluster.liveness import ProcessLiveness
from barnabas.registry.processes import begin_process, end_process
from registry.other_process import Child
from registry.other_process import child as child


def run(main: Callable[[ProcessLiveness, "asyncio.Queue[str]"], Coroutine[Any, Any, None]]) -> None:
    """Runs `main` with a queue for what is told. All descriptors are closed afterwards."""

    async def inner() -> None:
        loop = asyncio.get_running_loop()
        before = descriptors()
        await asyncio.wait_for(main(ProcessLiveness(loop), asyncio.Queue()), 60)
        assert descriptors() == before

    asyncio.run(inner())


def descriptors() -> set[str]:
    """Returns the descriptors of this process that stand for processes."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found |= {name} if "pidfd" in os.readlink(f"/proc/self/fd/{name}") else set()
        except FileNotFoundError:  # the one of the list itself
            continue
    return found


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_killed_process_is_told_once(child: Child) -> None:
    process, text = child

    async def main(liveness: ProcessLiveness, told: "asyncio.Queue[str]") -> None:
        stop = liveness.watch(text, lambda: told.put_nowait("dead"))
        os.kill(process.pid, signal.SIGSTOP)
        await turns()
        assert told.empty(), "a stopped process is not dead"
        process.kill()
        assert await told.get() == "dead"
        process.wait()
        await turns()
        assert told.empty()
        stop()
        stop()

    run(main)


def test_a_process_that_has_ended_before_is_told_soon(child: Child) -> None:
    process, text = child
    process.kill()
    process.wait()

    async def main(liveness: ProcessLiveness, told: "asyncio.Queue[str]") -> None:
        liveness.watch(text, lambda: told.put_nowait("dead"))
        assert told.empty(), "not within the call"
        assert await told.get() == "dead"
        cancelled = liveness.watch(text, lambda: told.put_nowait("dead"))
        cancelled()
        await turns()
        assert told.empty()

    run(main)


def test_a_watch_that_was_ended_tells_nothing(child: Child) -> None:
    process, text = child

    async def main(liveness: ProcessLiveness, told: "asyncio.Queue[str]") -> None:
        assert len(descriptors()) == 0
        stop = liveness.watch(text, lambda: told.put_nowait("former"))
        assert len(descriptors()) == 1
        stop()
        liveness.watch(text, lambda: told.put_nowait("present"))
        process.kill()
        assert await told.get() == "present"
        assert told.empty()

    run(main)


def test_a_process_id_that_is_used_again_is_told_as_the_end_of_the_former(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended, and its id was used again, between the look at it and its descriptor."""
    _, text = child
    answers = iter([True, False])
    monkeypatch.setattr(liveness, "is_running", lambda process: next(answers))

    async def main(liveness: ProcessLiveness, told: "asyncio.Queue[str]") -> None:
        liveness.watch(text, lambda: told.put_nowait("dead"))
        assert await told.get() == "dead"

    run(main)


def test_a_broker_of_this_process_is_told_at_its_stop() -> None:
    own = begin_process()

    async def main(liveness: ProcessLiveness, told: "asyncio.Queue[str]") -> None:
        stop = liveness.watch(own, lambda: told.put_nowait("former"))
        stop()
        liveness.watch(own, lambda: told.put_nowait("present"))
        await turns()
        assert told.empty()
        await asyncio.get_running_loop().run_in_executor(None, end_process, own)
        assert await told.get() == "present"
        assert told.empty()

    run(main)


def test_a_process_that_cannot_be_seen_is_not_told(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    process, text = child
    boot, _, *rest = text.split("|")

    async def main(liveness: ProcessLiveness, told: "asyncio.Queue[str]") -> None:
        elsewhere = liveness.watch("|".join((boot, "pid:[1]", *rest)), lambda: told.put_nowait("dead"))
        with monkeypatch.context() as patch:
            patch.delattr(os, "pidfd_open")
            unseen = liveness.watch(text, lambda: told.put_nowait("dead"))
        process.kill()
        process.wait()
        await turns()
        assert told.empty()
        elsewhere()
        unseen()

    run(main)


def test_the_end_of_the_loop_comes_first() -> None:
    own = begin_process()
    loop = asyncio.new_event_loop()
    ProcessLiveness(loop).watch(own, lambda: pytest.fail("told after the end of the loop"))
    loop.close()
    end_process(own)
