"""A thread that sees that the event loop stands still."""

import logging
import threading
from collections.abc import Callable

import pytest

from barnabas.broker.loop_watchdog import LoopWatchdog

LIMIT_S = 0.2


@pytest.fixture
def told() -> list[threading.Event]:
    return [threading.Event(), threading.Event()]


def test_a_loop_that_stands_still_is_told_until_it_is_heard_and_once_more_each_time(
    told: list[threading.Event], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def stands_still(still_stands: Callable[[], bool]) -> bool:
        assert still_stands()
        calls.append(threading.current_thread().name)
        told[len(calls) > 2].set()
        return len(calls) > 1  # the first time the registry does not respond

    watchdog = LoopWatchdog(LIMIT_S, stands_still, logging.getLogger("barnabas.test"))
    try:
        assert told[0].wait(30)
        assert not told[1].wait(2 * LIMIT_S)
        watchdog.turned()
        assert told[1].wait(30)
    finally:
        watchdog.close()
    assert set(calls) == {"barnabas-watchdog"}
    assert len(calls) == 3
    assert "the event loop stands still for" in caplog.text
    assert "wait" in caplog.text


def test_a_loop_that_turns_is_left_alone(told: list[threading.Event]) -> None:
    def stands_still(still_stands: Callable[[], bool]) -> bool:
        told[0].set()
        return True

    watchdog = LoopWatchdog(1.0, stands_still, logging.getLogger("barnabas.test"))
    for _ in range(30):
        watchdog.turned()
        assert not told[0].wait(0.05)
    watchdog.close()


def test_a_decision_that_waited_hears_that_the_loop_has_gone_on(told: list[threading.Event]) -> None:
    """Its turn comes late behind a slow write to the registry."""
    stands: list[bool] = []

    def stands_still(still_stands: Callable[[], bool]) -> bool:
        stands.append(still_stands())
        told[0].set()
        assert told[1].wait(30)
        stands.append(still_stands())
        told[0].set()
        return True

    watchdog = LoopWatchdog(LIMIT_S, stands_still, logging.getLogger("barnabas.test"))
    try:
        assert told[0].wait(30)
        told[0].clear()
        watchdog.turned()
        told[1].set()
        assert told[0].wait(30)
    finally:
        watchdog.close()
    assert stands[:2] == [True, False]
