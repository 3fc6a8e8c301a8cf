"""Calls the application's callbacks on the threads of the synchronous clients."""

import threading
from collections import deque
from collections.abc import Callable

from barnabas.connection.drivers.signals import HELD

__all__ = ["Callbacks", "log_exception"]


class Callbacks:
    """Calls the callbacks that are due, in order, on one thread at a time, which must not hold the driver's lock."""

    def __init__(self, due: deque[Callable[[], None]], name: str) -> None:
        self._due = due
        self._name = name
        self._lock = threading.Lock()

    def make(self) -> None:
        """Calls all callbacks that are due, unless another thread does."""
        while self._due:
            with HELD:  # so that no signal keeps the lock locked or loses a callback
                if not self._lock.acquire(blocking=False):
                    return
                try:
                    while self._due:
                        self._make_one(self._due.popleft())
                finally:
                    self._lock.release()

    def _make_one(self, call: Callable[[], None]) -> None:
        begun = False
        try:
            with HELD.through:
                begun = True
                call()
        except Exception:
            log_exception("a callback of the %s fails", self._name)
        except BaseException:
            if not begun:
                self._due.appendleft(call)
            raise


def log_exception(text: str, name: str) -> None:
    """Logs the exception of the client with that name."""
    import logging  # imported only after a mistake

    logging.getLogger("barnabas.client").exception(text, name)
