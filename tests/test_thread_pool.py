"""A pool of threads where the system gives no further one."""

import threading

import pytest

from barnabas.thread_pool import ThreadPool
from no_more_threads import refuse_threads


def test_those_that_are_there_do_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    going_on = threading.Event()
    with ThreadPool(3, "test") as pool:
        waiting = pool.submit(going_on.wait)
        with monkeypatch.context() as patch:
            refuse_threads(patch)
            results = [pool.submit(int, number) for number in range(10)]
        assert not any(result.done() for result in results)
        going_on.set()
        assert [result.result(timeout=60) for result in results] == list(range(10))
        assert waiting.result() is True
        assert pool.submit(threading.active_count).result() >= 2


def test_without_any_there_is_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ThreadPool(3, "test")
