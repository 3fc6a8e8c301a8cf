"""One answer made of many, without the event loop."""

import gc
import weakref
from collections.abc import Callable

from barnabas.coordinator.responses import each


def test_many_items_are_started_over_several_turns() -> None:
    """A request for many groups does not hold up the others."""
    started: list[int] = []
    turns: list[Callable[[], None]] = []
    finished: list[list[int]] = []

    def start(item: int, done: Callable[[int], None]) -> None:
        started.append(item)
        done(-item)

    each(range(5), start, finished.append, turns.append, at_once=2)
    assert started == [0, 1]
    while turns:
        before = len(started)
        turns.pop()()
        assert len(started) - before <= 2
    assert finished == [[0, -1, -2, -3, -4]]
    each([], start, finished.append, turns.append)
    assert finished[1:] == [[]]


def test_answered_items_need_no_garbage_collection() -> None:
    turns: list[Callable[[], None]] = []

    def start(item: int, done: Callable[[int], None]) -> None:
        done(-item)

    left = weakref.ref(start)
    gc.disable()
    try:
        each(range(5), start, lambda responses: None, turns.append, at_once=2)
        while turns:
            turns.pop()()
        del start
        assert left() is None
    finally:
        gc.enable()
