"""The cleaner as a process of its own: it works, it dies, its broker dies, and nothing is left of it."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.cleaner.cleaner_process import CleanerProcess, exit_description
from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from barnabas.log.cleaner.cleaner_worker import NICENESS
from barnabas.log.cleaner.log_cleaner_manager import DEATHS_MAX, RETRY_MAX_MS, SILENCE_MAX_S, LogCleanerManager
from log.cleaner.cleaner_rig import TP, CleanerRig, MakeRig
from log.cleaner.cleaner_rig import make_rig as make_rig
from log.cleaner.cleaner_rig import quiet_cleaner as quiet_cleaner

TESTS = Path(__file__).parents[2]
TIMEOUT_S = 60.0


class Running:
    """A rig whose worker is a process, on an event loop that runs until something has happened."""

    def __init__(self, rig: CleanerRig, idle_s: float) -> None:
        self.rig = rig
        self.loop = asyncio.new_event_loop()
        self.events: list[dict[str, Any]] = []
        self.ends: list[str] = []
        self.process = CleanerProcess(self.loop, self._event, self._end, idle_s)
        self.cleaner = LogCleanerManager(rig.manager, self.process, lambda: rig.limits, rig.clock, lambda: None)
        rig.cleaner = self.cleaner
        self._woken = asyncio.Event()
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None

    def _event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.on_event(event)
        self.cleaner.event(event)
        self._woken.set()

    def _end(self, reason: str) -> None:
        self.ends.append(reason)
        self.cleaner.ended(reason)
        self._woken.set()

    def until(self, condition: Callable[[], Any]) -> None:
        async def wait() -> None:
            while not condition():
                self._woken.clear()
                await self._woken.wait()

        self.loop.run_until_complete(asyncio.wait_for(wait(), TIMEOUT_S))

    def until_told(self, kind: str) -> None:
        self.until(lambda: any(event["event"] == kind for event in self.events))

    def close(self) -> None:
        self.process.close()
        self.cleaner.close()
        self.loop.close()


MakeRunning = Callable[..., Running]


@pytest.fixture
def make_running(make_rig: MakeRig) -> Iterator[MakeRunning]:
    made: list[Running] = []

    def make(idle_s: float = 30.0, **settings: Any) -> Running:
        running = Running(make_rig(**settings), idle_s)
        made.append(running)
        return running

    yield make
    for running in made:
        running.close()


def fill(rig: CleanerRig, batches: int = 20, size: int = 100) -> None:
    for number in range(batches):
        rig.put((f"k{number % 5}", f"{number}" + "x" * size))
    rig.roll()


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def slow(running: Running) -> None:
    """So slow that it is still at work when the test has done what it wants to do."""
    running.rig.limits = CleanerConfig(io_max_bytes_per_second=10.0, io_buffer_size=4096)


def test_it_cleans_behind_the_broker_and_takes_the_next_job(make_running: MakeRunning) -> None:
    running = make_running()
    fill(running.rig)
    assert running.process.pid is None, "no process before there is work"
    assert running.cleaner.run()
    pid = running.process.pid
    assert pid is not None
    assert not running.cleaner.run(), "one at a time"
    assert running.cleaner.busy == {TP}
    running.until_told("finished")
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
    assert [record.offset for record in running.rig.read()] == [15, 16, 17, 18, 19]
    fill(running.rig)
    running.events.clear()
    assert running.cleaner.run()
    running.until_told("finished")
    assert running.process.pid == pid
    assert [record.offset for record in running.rig.read()] == [35, 36, 37, 38, 39]
    running.close()
    assert not exists(pid)


def test_it_ends_when_there_is_nothing_to_do(make_running: MakeRunning) -> None:
    running = make_running(idle_s=0.05)
    fill(running.rig)
    running.cleaner.run()
    running.until_told("finished")
    running.until(lambda: running.ends)
    assert running.ends == ["ended with exit code 0"]
    assert running.process.pid is None
    fill(running.rig)
    running.events.clear()
    assert running.cleaner.run(), "another one for the next job"
    running.until_told("finished")


def end_with_work_left(running: Running) -> int:
    """Returns the number of a process that has done a job and ended, which its broker sees only after the next job was
    submitted, for which there is work now."""
    fill(running.rig)
    running.cleaner.run()
    running.until_told("finished")
    first = running.process.pid
    assert first is not None
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    fill(running.rig)
    return first


def test_a_job_that_comes_as_it_ends_is_not_lost(make_running: MakeRunning) -> None:
    running = make_running(idle_s=0.05)
    first = end_with_work_left(running)
    running.events.clear()
    assert running.cleaner.run()
    assert running.process.pid == first
    running.until_told("finished")
    assert running.process.pid not in (None, first)
    assert running.ends == []


def wait_until_reaped_in_vain(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Waits until the output of the process has ended, it itself not yet. Returns the list of the looks at it."""
    polls: list[int] = []
    real = subprocess.Popen.poll

    def poll(process: "subprocess.Popen[bytes]") -> int | None:
        polls.append(process.pid)
        running._woken.set()
        return None if len(polls) == 1 else real(process)

    monkeypatch.setattr(subprocess.Popen, "poll", poll)
    running.until(lambda: polls)
    return polls


def test_a_job_that_comes_while_the_process_before_is_waited_for(
    make_running: MakeRunning, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make_running(idle_s=0.05)
    end_with_work_left(running)
    wait_until_reaped_in_vain(running, monkeypatch)
    running.events.clear()
    assert running.cleaner.run()
    running.until_told("finished")
    assert running.ends == []
    assert running.cleaner.state(TP).deaths == 0


def test_a_job_that_comes_as_it_ends_and_is_given_up_again(make_running: MakeRunning) -> None:
    running = make_running(idle_s=0.05)
    rig = running.rig
    end_with_work_left(running)
    assert running.cleaner.run()
    rig.manager.delete(TP)
    running.events.clear()
    running.cleaner.check()
    running.until(lambda: not running.cleaner.busy)
    assert running.process.pid is None
    assert running.events == [], "nobody wanted the job any more"
    rig.log = rig.manager.create(TP, None, rig.config)
    fill(rig)
    running.events.clear()
    assert running.cleaner.run()
    running.until_told("finished")


def test_nothing_is_started_after_the_close(make_running: MakeRunning, monkeypatch: pytest.MonkeyPatch) -> None:
    running = make_running(idle_s=0.05)
    end_with_work_left(running)
    running.cleaner.run()
    polls = wait_until_reaped_in_vain(running, monkeypatch)
    running.process.close()
    running.until(lambda: len(polls) > 1)
    assert running.process.pid is None


def test_a_process_that_hangs_is_killed_and_its_log_tried_again(make_running: MakeRunning) -> None:
    running = make_running()
    rig = running.rig
    fill(rig)
    slow(running)
    for hang in range(1, DEATHS_MAX + 3):
        running.events.clear()
        running.ends.clear()
        assert running.cleaner.run()
        pid = running.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        rig.clock.now_ms += int(SILENCE_MAX_S * 1000)
        running.cleaner.check()
        assert running.cleaner.busy, "not yet"
        rig.clock.now_ms += 1
        running.cleaner.check()
        running.until(lambda: running.ends)
        assert not exists(pid)
        state = running.cleaner.state(TP)
        assert (state.failures, state.deaths, state.uncleanable) == (hang, 0, "")
        assert "said nothing for 300 s" in running.cleaner.describe(rig.log)["failure"]
        assert not running.cleaner.run(), "not at once"
        rig.clock.now_ms += RETRY_MAX_MS
    rig.limits = CleanerConfig()
    running.events.clear()
    assert running.cleaner.run()
    running.until_told("finished")
    assert running.cleaner.state(TP).failure == ""
    assert len(rig.read()) == 5


def test_a_process_that_says_something_now_and_then_does_not_hang(
    make_running: MakeRunning, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make_running()
    kills: list[float] = []
    monkeypatch.setattr(running.process, "kill", lambda: kills.append(running.rig.clock.monotonic()))
    rig = running.rig
    fill(rig)
    slow(running)
    running.cleaner.run()
    for _ in range(10):
        rig.clock.now_ms += int(SILENCE_MAX_S * 1000)
        running.cleaner.event({"event": "alive"})
        running.cleaner.check()
    rig.clock.now_ms += int(SILENCE_MAX_S * 1000)
    running.cleaner.check()
    assert kills == []
    rig.clock.now_ms += 1
    running.cleaner.check()
    assert len(kills) == 1


@pytest.mark.parametrize(("code", "words"), [(-9, "was killed by SIGKILL"), (-40, "was killed by signal 40")])
def test_how_it_ended_is_said_for_every_signal(code: int, words: str) -> None:
    assert exit_description(code) == words


def test_killed_it_costs_the_work_and_nothing_else(make_running: MakeRunning) -> None:
    running = make_running()
    rig = running.rig
    fill(rig)
    before = rig.read()
    for death in range(1, DEATHS_MAX + 1):
        slow(running)
        running.events.clear()
        running.ends.clear()
        assert running.cleaner.run()
        assert running.process.pid is not None
        os.kill(running.process.pid, signal.SIGKILL)
        running.until(lambda: running.ends)
        assert running.ends == ["was killed by SIGKILL"]
        state = running.cleaner.state(TP)
        assert state.deaths == death
        assert bool(state.uncleanable) is (death == DEATHS_MAX)
        assert not running.cleaner.run(), "not at once"
        rig.clock.now_ms += 3_600_000
    assert rig.read() == before
    assert "was killed by SIGKILL" in running.cleaner.describe(rig.log)["uncleanable"]
    rig.manager.remove_deleted(rig.clock.now_ms)
    assert not rig.files(".cleaned")


def test_killed_once_it_is_tried_again(make_running: MakeRunning) -> None:
    running = make_running()
    fill(running.rig)
    slow(running)
    running.cleaner.run()
    assert running.process.pid is not None
    os.kill(running.process.pid, signal.SIGKILL)
    running.until(lambda: running.ends)
    running.rig.clock.now_ms += 60_000
    running.rig.limits = CleanerConfig()
    assert running.cleaner.run()
    running.until_told("finished")
    state = running.cleaner.state(TP)
    assert (state.deaths, state.failure, state.uncleanable) == (0, "", "")


def test_a_log_that_is_deleted_meanwhile(make_running: MakeRunning) -> None:
    running = make_running()
    rig = running.rig
    fill(rig)
    slow(running)
    running.cleaner.run()
    pid = running.process.pid
    assert pid is not None
    rig.manager.delete(TP)
    running.cleaner.check()
    running.until(lambda: running.ends)
    assert not exists(pid)
    assert running.cleaner.busy == frozenset()
    assert running.cleaner.state(TP).deaths == 0
    rig.log = rig.manager.create(TP, None, rig.config)
    fill(rig)
    rig.limits = CleanerConfig()
    running.cleaner.run()
    running.until_told("finished")
    assert len(rig.read()) == 5


def test_a_log_that_is_cut_meanwhile(make_running: MakeRunning) -> None:
    running = make_running()
    rig = running.rig
    fill(rig)
    running.on_event = lambda event: rig.log.truncate_to(7) if event["event"] == "cleaned" else None
    running.cleaner.run()
    running.until(lambda: running.ends)
    assert [record.offset for record in rig.read()] == list(range(7)), "the result of the cleaning was not used"
    assert running.cleaner.state(TP).failures == 0


def test_retention_during_a_cleaning_voids_it(make_running: MakeRunning) -> None:
    running = make_running(segment_bytes=600)
    rig = running.rig
    fill(rig, 30)
    first = rig.log.segments[1].base_offset

    def drop(event: dict[str, Any]) -> None:
        if event["event"] == "mapped":
            rig.log.delete_records(first)
            rig.log.delete_old_segments(rig.clock.now_ms)

    assert rig.manager.cleanup_logs(rig.clock.now_ms, busy={TP}) == 0
    running.on_event = drop
    running.cleaner.run()
    running.until(lambda: running.ends or any(e["event"] in ("failed", "finished") for e in running.events))
    assert min(record.offset for record in rig.read()) >= first
    rig.clock.now_ms += 3_600_000
    running.on_event = lambda event: None
    while running.cleaner.run():
        running.events.clear()
        running.until_told("finished")
    assert len(rig.read()) == 5


def test_a_job_larger_than_a_pipe(make_running: MakeRunning) -> None:
    running = make_running()
    rig = running.rig
    for producer in range(9000):
        rig.put((f"k{producer % 3}", "v"), producer_id=producer, producer_epoch=0, base_sequence=0)
    rig.roll()
    running.cleaner.run()
    running.until_told("finished")
    assert len(rig.read()) == 3
    assert len(rig.batches()) == 9000, "each is the last one of its producer"


def test_it_ends_with_its_broker(tmp_path: Path) -> None:
    """The broker is killed while its cleaner works."""
    script = f"""
import os, signal
from pathlib import Path
from log.cleaner.cleaner_rig import CleanerRig
from broker.cleaner.test_cleaner_process import Running, fill, slow
running = Running(CleanerRig(Path({str(tmp_path)!r})), 30.0)
fill(running.rig)
slow(running)
running.cleaner.run()
while running.process._unsent:
    running.loop.call_soon(running.loop.stop)
    running.loop.run_forever()
print(running.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=TESTS) as broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        worker = os.pidfd_open(pid)
        try:
            assert select.select([worker], [], [], TIMEOUT_S)[0], "it goes on without its broker"
        finally:
            os.close(worker)


def test_a_process_that_speaks_nonsense_is_ended(make_running: MakeRunning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.cleaner.cleaner_process._COMMAND", ("-c", "print('hello'); input()"))
    running = make_running()
    fill(running.rig)
    running.cleaner.run()
    running.until(lambda: running.ends)
    assert running.ends == ["was killed by SIGKILL"]


def test_a_python_that_cannot_be_started(make_running: MakeRunning, monkeypatch: pytest.MonkeyPatch) -> None:
    running = make_running()
    fill(running.rig)
    for executable in ("", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", executable)
        assert not running.cleaner.run()
        assert "the cleaner cannot work" in running.cleaner.state(TP).failure
        running.rig.clock.now_ms += 60_000
