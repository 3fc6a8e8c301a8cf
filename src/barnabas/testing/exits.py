"""The end of a test's process, which closes the brokers that the test has left open."""

import atexit
import os
from collections.abc import Callable

__all__ = ["at_exit"]


def at_exit(close: Callable[[], None]) -> Callable[[], None]:
    """Calls a function at the end of this process, but not of one that is forked from it. Returns a function that
    takes that back."""
    pid = os.getpid()

    def end() -> None:
        if os.getpid() == pid:
            close()

    atexit.register(end)
    return lambda: atexit.unregister(end)
