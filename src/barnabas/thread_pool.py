"""Threads for calls that block, also where the system gives this process no further one."""

from concurrent.futures import ThreadPoolExecutor

__all__ = ["ThreadPool"]


class ThreadPool(ThreadPoolExecutor):
    """Runs calls in at most so many threads. The first one is started at once, the others when all are busy: if memory
    is short by then, those that are there do all the work."""

    def __init__(self, threads_max: int, name: str) -> None:
        """Raises RuntimeError if not even one thread can be started."""
        super().__init__(threads_max, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # the call is queued already, and would be made, but nobody would have its result
            if not self._threads:
                raise
