"""Signals that wait until the network client is at rest."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.connection.drivers.signals import HELD

TERM = signal.SIGTERM


@pytest.fixture
def heard() -> Iterator[list[int]]:
    heard: list[int] = []

    def hear(number: int, _: Any) -> None:
        heard.append(number)

    before = signal.signal(TERM, hear)
    yield heard
    assert signal.getsignal(TERM) is hear
    signal.signal(TERM, before)


def test_a_handler_is_called_at_the_end(heard: list[int]) -> None:
    with HELD:
        signal.raise_signal(TERM)
        with HELD:
            assert not heard
        assert not heard
    assert heard == [TERM]


def test_ctrl_c_is_raised_at_the_end() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), HELD:  # noqa: PT012
        steps.append(1)
        signal.raise_signal(signal.SIGINT)
        steps.append(2)
    assert steps == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_insists_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), HELD:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one has to wait")


def test_where_they_are_let_through(heard: list[int]) -> None:
    with HELD:
        signal.raise_signal(TERM)
        with HELD.through:
            assert heard == [TERM]
            signal.raise_signal(TERM)
            assert heard == [TERM, TERM]
            with HELD:
                signal.raise_signal(TERM)
                assert heard == [TERM, TERM]
            assert heard == [TERM, TERM, TERM]
        signal.raise_signal(TERM)
        assert len(heard) == 3
    assert len(heard) == 4


def test_one_that_raises_where_it_is_let_through() -> None:
    with pytest.raises(KeyboardInterrupt), HELD:  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        try:
            with HELD.through:
                pytest.fail("it was noted")
        finally:
            assert HELD.holds
    assert not HELD.holds


def test_a_handler_that_is_set_meanwhile_stays(heard: list[int]) -> None:
    before = signal.getsignal(TERM)
    with HELD:
        signal.signal(TERM, signal.SIG_IGN)
    assert signal.getsignal(TERM) is signal.SIG_IGN
    signal.signal(TERM, before)


def test_what_has_no_handler_is_left_alone() -> None:
    before = signal.signal(TERM, signal.SIG_IGN)
    with HELD:
        assert signal.getsignal(TERM) is signal.SIG_IGN
    signal.signal(TERM, before)


def test_other_threads_hold_nothing(heard: list[int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with HELD, HELD.through:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    signal.raise_signal(TERM)
    assert heard == [TERM]
    leave.set()
    thread.join()


def test_a_child_that_another_thread_forked(heard: list[int]) -> None:
    """There that thread is the main one, and holds nothing."""
    results: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            try:
                signal.raise_signal(TERM)
                right = heard == [TERM] and not HELD.holds
                with HELD:
                    signal.raise_signal(TERM)
                    right = right and len(heard) == 1
                os._exit(0 if right and len(heard) == 2 else 1)
            finally:
                os._exit(2)
        results.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with HELD:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert results == [0]
    assert not heard
