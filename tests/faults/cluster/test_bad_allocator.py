"""Allocations fail in a process that listens when it is told so, where it runs on its event loop."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import bad_allocator, rounds
from cluster.bad_allocator import BadAllocator, why_not
from cluster.plan import Deed

needs_testcapi = pytest.mark.skipif(bool(why_not()), reason=why_not())
ANSWERS = """
import asyncio, itertools, os, signal, sys
from cluster.bad_allocator import listening

async def answer():
    print("ready", flush=True)
    while sys.stdin.readline():
        try:
            [bytes(100) for _ in itertools.repeat(None, 10_000)]
        except MemoryError:
            print("denied", flush=True)
        else:
            print("granted", flush=True)
"""
ON_A_LOOP = """
with listening():
    asyncio.run(answer())
"""
WITHOUT = """
with listening():
    next(answer().__await__(), None)
"""
BEFORE = """
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGUSR2):
        kill(pid, number)

last = Last()  # which CPython takes apart after its handlers of signals
with listening():
    pass
asyncio.run(answer())
"""
DEAF = "asyncio.run(answer())"

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def allocator(tmp_path: Path) -> Iterator[BadAllocator]:
    made = BadAllocator(tmp_path / "allocator")
    yield made
    made.close()


@pytest.fixture
def start(allocator: BadAllocator) -> Iterator[Start]:
    """Starts a process that says for each line whether it gets memory."""
    processes = []

    def started(how: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-c", ANSWERS + how],
            env={**allocator.environment, "PYTHONPATH": str(Path(bad_allocator.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield started
    for process in processes:
        process.communicate()
        assert process.returncode == 0


def ask(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return process.stdout.readline().decode().strip()


@needs_testcapi
def test_as_many_allocations_fail_as_were_denied(allocator: BadAllocator, start: Start) -> None:
    process = start(ON_A_LOOP)
    assert ask(process) == "granted"
    allocator.deny(process, 1_000, 1)
    assert [ask(process) for _ in range(3)] == ["denied", "granted", "granted"]
    allocator.deny(process, 1_000, 1)
    assert ask(process) == "denied"


@needs_testcapi
def test_what_is_still_to_fail_goes_well_once_the_process_has_heard_of_it(
    allocator: BadAllocator, start: Start
) -> None:
    process = start(ON_A_LOOP)
    allocator.deny(process, 15_000, 1)
    assert ask(process) == "granted"
    allocator.allow(process)
    assert [ask(process) for _ in range(3)] == ["granted"] * 3
    assert allocator.heard(process)


@needs_testcapi
def test_a_process_has_heard_of_nothing_before_it_runs(allocator: BadAllocator, start: Start) -> None:
    process = start("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])" + ON_A_LOOP)
    assert allocator.heard(process)
    allocator.allow(process)
    assert ask(process) == "granted"
    assert not allocator.heard(process)


@needs_testcapi
@pytest.mark.parametrize("program", [WITHOUT, BEFORE], ids=["before-its-event-loop", "about-to-end"])
def test_one_that_loads_code_or_ends_is_spared(allocator: BadAllocator, start: Start, program: str) -> None:
    process = start(program)
    allocator.deny(process, 1_000, 1)
    assert ask(process) == "granted"
    assert allocator.heard(process)


@needs_testcapi
def test_the_next_process_follows_the_next_order(allocator: BadAllocator, start: Start) -> None:
    first = start(ON_A_LOOP)
    allocator.deny(first, 1_000, 1)
    second = start(ON_A_LOOP)
    assert ask(second) == "granted"
    allocator.deny(second, 1_000, 1)
    assert ask(second) == "denied"


def test_one_that_does_not_listen_gets_no_signal(allocator: BadAllocator, start: Start) -> None:
    process = start(DEAF)
    allocator.deny(process, 0, 1)
    assert ask(process) == "granted"
    assert allocator.heard(process)


@pytest.mark.parametrize(
    ("reason", "left", "lines"),
    [
        ("", {Deed.KILL, Deed.ALLOCATIONS}, []),
        ("no hook", {Deed.KILL}, ["no broker is denied allocations: no hook"]),
    ],
)
def test_a_python_without_the_hook_leaves_the_fault_out(
    reason: str, left: set[Deed], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(rounds, "why_not", lambda: reason)
    assert rounds.possible(frozenset({Deed.KILL, Deed.ALLOCATIONS}), said.append) == left
    assert said == lines
    assert rounds.possible(frozenset({Deed.KILL}), said.append) == {Deed.KILL}
    assert said == lines
