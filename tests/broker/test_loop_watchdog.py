"""A thread that sees that the event loop stands still."""

import logging
import threading

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

    def stands_still() -> bool:
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
    def stands_still() -> bool:
        told[0].set()
        return True

    watchdog = LoopWatchdog(1.0, stands_still, logging.getLogger("barnabas.test"))
    for _ in range(30):
        watchdog.turned()
        assert not told[0].wait(0.05)
    watchdog.close()
