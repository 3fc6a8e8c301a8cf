"""A pool of threads: calls and their results, also where the system gives no further thread, and until the very end."""

import gc
import subprocess
import sys
import threading
import weakref
from concurrent.futures import CancelledError, Future

import pytest

from barnabas.thread_pool import ThreadPool
from no_more_threads import refuse_threads


def test_threads_are_started_when_all_are_busy_and_no_more_than_there_may_be() -> None:
    begun, going_on = threading.Barrier(3), threading.Event()

    def wait() -> bool:
        begun.wait(60)
        return going_on.wait(60)

    with ThreadPool(2, "test") as pool:
        assert len({pool.submit(threading.get_ident).result() for _ in range(10)}) == 1
        waiting = [pool.submit(wait) for _ in range(2)]
        begun.wait(60)
        further = pool.submit(threading.get_ident)
        assert not further.running()
        going_on.set()
        assert all(each.result() for each in waiting)
        further.result()


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
    with pytest.raises(OSError, match="the system gives no further thread"):
        ThreadPool(3, "test")


@pytest.mark.parametrize("cancel", [False, True])
def test_a_shutdown_makes_what_is_queued_or_cancels_it(cancel: bool) -> None:
    begun, going_on = threading.Event(), threading.Event()
    pool = ThreadPool(1, "test")
    running = pool.submit(lambda: (begun.set(), going_on.wait()))
    queued = pool.submit(int, "7")
    assert begun.wait(60)
    pool.shutdown(wait=False, cancel_futures=cancel)
    with pytest.raises(RuntimeError, match="the threads test take no more calls"):
        pool.submit(int)
    going_on.set()
    pool.shutdown()
    assert running.done()
    if cancel:
        with pytest.raises(CancelledError):
            queued.result()
    else:
        assert queued.result() == 7


def test_an_exception_does_not_wait_for_what_is_queued() -> None:
    begun, going_on = threading.Event(), threading.Event()

    def run() -> None:
        with ThreadPool(1, "test") as pool:
            calls.append(pool.submit(lambda: (begun.set(), going_on.wait(60))))
            calls.append(pool.submit(int))
            assert begun.wait(60)
            calls[1].add_done_callback(lambda _: going_on.set())
            raise KeyError

    calls: list[Future[object]] = []
    with pytest.raises(KeyError):
        run()
    assert [call.cancelled() for call in calls] == [False, True]


def test_an_error_is_the_callers_and_the_thread_goes_on() -> None:
    with ThreadPool(1, "test") as pool:
        with pytest.raises(ValueError, match="invalid literal"):
            pool.submit(int, "x").result()
        cancelled = pool.submit(int)
        cancelled.cancel()
        assert pool.submit(int, "7").result() == 7


class Result:
    pass


def test_nothing_is_kept_of_a_call_nor_of_a_pool_that_nobody_has() -> None:
    gc.disable()
    try:
        pool = ThreadPool(1, "forgotten")
        argument = Result()
        result = pool.submit(lambda each: Result(), argument).result()
        kept = [weakref.ref(argument), weakref.ref(result)]
        failed = pool.submit(int, "x")
        assert isinstance(failed.exception(), ValueError)
        kept.append(weakref.ref(failed))
        pool.submit(int).result()
        del argument, result, failed
        assert [each() for each in kept] == [None] * 3
        (thread,) = [each for each in threading.enumerate() if each.name == "forgotten_0"]
        del pool
        thread.join(60)
        assert not thread.is_alive()
    finally:
        gc.enable()


def test_calls_are_made_until_the_last_thread_of_a_program_has_ended() -> None:
    script = """
import threading
from barnabas.thread_pool import ThreadPool
pool = ThreadPool(2, "test")
forever = pool.submit(threading.Event().wait)
def last():
    threading.main_thread().join()
    print(pool.submit(int, "7").result())
threading.Thread(target=last).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")
