"""Long work in slices: who is in line has a slice, and the loop its turn in between."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.network.time_slicing import SLICE_S, TURN_S, Slices, TimeSlicer


class Loop:
    """A clock that work moves on, and what was planned for the next turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def turns_of(loop: Loop) -> TimeSlicer:
    return TimeSlicer(cast(asyncio.AbstractEventLoop, loop))


def test_a_turn_of_the_loop_runs_slices_in_the_order_of_the_line_for_a_bounded_time() -> None:
    loop = Loop()
    turns = turns_of(loop)
    ran: list[str] = []

    def work(name: str, slices: int) -> Callable[[], bool]:
        def run_slice() -> bool:
            loop.now += SLICE_S * 1.01
            ran.append(name)
            return ran.count(name) < slices

        return run_slice

    for name, slices in (("a", 1000), ("b", 2), ("c", 3)):
        turns.add(work(name, slices))
    assert not ran, "nothing runs in the stack of who enters"
    loop.turn()
    first = list(ran)
    assert first == ["a", "b", "c", "a"]
    assert loop.now <= TURN_S + 2 * SLICE_S
    loop.turn()
    assert ran[len(first) :] == ["b", "c", "a", "c"]
    loop.turn()
    assert set(ran[8:]) == {"a"}
    assert len(loop.soon) == 1


def test_work_that_raises_does_not_stop_the_others() -> None:
    loop = Loop()
    turns = turns_of(loop)
    ran: list[str] = []

    def fail() -> bool:
        raise ZeroDivisionError("a bug")

    def well() -> bool:
        ran.append("well")
        return False

    turns.add(fail)
    turns.add(well)
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.turn()
    assert ran == ["well"]
    assert not loop.soon
    turns.add(well)
    loop.turn()
    assert ran == ["well", "well"]


def test_a_slice_is_as_many_pieces_as_fit_into_its_time() -> None:
    loop = Loop()
    turns = turns_of(loop)

    def pieces() -> Slices[str]:
        for _ in range(10):
            loop.now += SLICE_S / 4
            yield
        return "done"

    work: Any = pieces()
    before = loop.now
    turns.advance(work)
    assert SLICE_S <= loop.now - before <= SLICE_S * 1.5
    turns.advance(work)
    with pytest.raises(StopIteration) as ended:
        turns.advance(work)
    assert ended.value.value == "done"
