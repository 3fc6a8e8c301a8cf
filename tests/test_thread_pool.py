"""A pool of threads where the system gives no further one."""

import threading
from typing import Any

import pytest

from barnabas.thread_pool import ThreadPool


def refuse(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_those_that_are_there_do_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    going_on = threading.Event()
    with ThreadPool(3, "test") as pool:
        waiting = pool.submit(going_on.wait)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            results = [pool.submit(int, number) for number in range(10)]
        assert not any(result.done() for result in results)
        going_on.set()
        assert [result.result(timeout=60) for result in results] == list(range(10))
        assert waiting.result() is True
        assert pool.submit(threading.active_count).result() >= 2


def test_without_any_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ThreadPool(3, "test")
