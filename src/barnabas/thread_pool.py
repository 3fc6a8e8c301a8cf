"""Threads for calls that block, also where the system gives this process no further one, and until its very end."""

import errno
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from barnabas.out_of_memory import end_if_out_of_memory

__all__ = ["ThreadPool"]

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool(Executor):
    """Runs calls in at most so many threads. The first one is started at once, the others when all are busy: if memory
    is short by then, those that are there do all the work.

    The threads are daemons, which the standard library's are not: a program that leaves a broker open has all of it
    until its last thread ends, and a disk that stands still does not hold up its exit.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        """Raises OSError if not even one thread can be started."""
        self._threads_max = threads_max
        self._name = name
        self._calls = _Calls()
        self._threads: list[threading.Thread] = []
        self._is_shut_down = False
        try:
            self._add_thread()
        except RuntimeError:
            raise OSError(errno.ENOMEM, "the system gives no further thread (memory, ulimit -u, pids.max)") from None
        # Without a shutdown, the threads end with the last reference to their pool.
        weakref.finalize(self, self._calls.queue.put, None).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a call. Raises RuntimeError after a shutdown."""
        future: Future[T] = Future()
        calls, call = self._calls, (future, partial(fn, *args, **kwargs))
        with calls.lock:
            if self._is_shut_down:
                raise RuntimeError(f"the threads {self._name} take no more calls")
            calls.queue.put(call)
            calls.unfinished += 1
            if len(self._threads) < min(calls.unfinished, self._threads_max):
                with suppress(RuntimeError, MemoryError):  # those that are there make the call
                    self._add_thread()
        return future

    def _add_thread(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._calls.make_all, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. Those that are queued are made, or cancelled; `wait` for the end of the last one."""
        with self._calls.lock:
            self._is_shut_down = True
            if cancel_futures:
                self._calls.cancel_queued()
            self._calls.queue.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def __exit__(self, kind: object, *_: object) -> None:
        """Waits for the end of all calls; after an exception for those that have begun."""
        self.shutdown(cancel_futures=kind is not None)


class _Calls:
    """The calls of a pool, which its threads share. They do not hold the pool itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        """A thread that finds None ends, and leaves it to the next one."""
        self.unfinished = 0

    def make_all(self) -> None:
        while (call := self.queue.get()) is not None:
            self._make(*call)
            del call  # the wait for the next one keeps neither its arguments nor its result
        self.queue.put(None)

    def _make(self, future: Future[T], function: Callable[[], T]) -> None:
        if not future.set_running_or_notify_cancel():
            self._finish_one()
            return
        try:
            result = function()
        except BaseException as error:
            end_if_out_of_memory(error)
            self._finish_one()
            future.set_exception(error)
            del future, function  # this frame is in the traceback of the error
        else:
            self._finish_one()
            future.set_result(result)

    def _finish_one(self) -> None:
        with self.lock:
            self.unfinished -= 1

    def cancel_queued(self) -> None:
        with suppress(Empty):
            while True:
                if (call := self.queue.get_nowait()) is not None:
                    call[0].cancel()
