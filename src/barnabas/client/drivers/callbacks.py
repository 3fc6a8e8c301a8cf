"""The application's callbacks on the threads of the synchronous clients."""

import threading
from collections import deque
from collections.abc import Callable

from barnabas.client.drivers.signals import HELD

__all__ = ["Callbacks", "log_exception"]


class Callbacks:
    """Makes the calls that are due, in order: by one thread at a time, which must not hold the driver's lock."""

    def __init__(self, due: deque[Callable[[], None]], name: str) -> None:
        self._due = due
        self._name = name
        self._lock = threading.Lock()

    def make(self) -> None:
        """All of them, unless another thread is at it."""
        due = self._due
        while due and self._lock.acquire(blocking=False):
            try:
                with HELD.through:
                    while due:
                        try:
                            due.popleft()()
                        except Exception:
                            log_exception("a callback of the %s fails", self._name)
            finally:
                self._lock.release()


def log_exception(text: str, name: str) -> None:
    """Of the client with that name."""
    import logging  # only mistakes pay for this import

    logging.getLogger("barnabas.client").exception(text, name)
