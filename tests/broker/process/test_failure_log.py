"""Failures that the protocol has no error for, in a broker's log."""

import errno
import logging

import pytest

from barnabas.broker.process.failure_log import FailureLog
from barnabas.clock import SystemClock
from barnabas.errors import KafkaStorageError, UnknownServerError


class SetClock(SystemClock):
    def __init__(self) -> None:
        self.now = 0.0
        self.monotonic = lambda: self.now


def test_a_failure_is_told_once_in_a_while_with_the_way_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    failures = FailureLog(logging.getLogger("test"), clock)
    for _ in range(3):
        error = failures.report("produce to t-0", OSError(errno.EMFILE, "Too many open files", "/data/t-0"))
        assert isinstance(error, KafkaStorageError)
    clock.now = 10.0
    failures.report("fetch from t-1", OSError(errno.EMFILE, "Too many open files"))
    way_out = "raise the limit on open files (ulimit -n)"
    assert caplog.messages == [
        f"produce to t-0 failed: Too many open files (/data/t-0); {way_out}",
        f"fetch from t-1 failed: Too many open files; {way_out} (2 more like this since the last line)",
    ]


def test_a_line_about_a_subject_comes_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    failures = FailureLog(logging.getLogger("test"), clock)
    for second in (0.0, 1.0, 2.0, 10.0):
        clock.now = second
        failures.warn("one", f"one is wrong at {second:g}")
        failures.warn("two", f"two is wrong at {second:g}")
    assert caplog.messages == [
        "one is wrong at 0",
        "two is wrong at 0",
        "one is wrong at 10 (2 more like this since the last line)",
        "two is wrong at 10 (2 more like this since the last line)",
    ]


def test_a_bug_is_shown_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("test"), SetClock())
    assert isinstance(failures.report("Fetch v12", ValueError("x")), UnknownServerError)
    assert caplog.records[0].exc_info is not None
