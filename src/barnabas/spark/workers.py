"""What Spark's Python workers need to be quick in a session with Spark's defaults: less garbage collection, and no
waiting for one another on the TCP connection that each has to the JVM."""

import contextlib
import gc
import os
import socket
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["TaskState", "settle", "speak_up"]

_calls = 0
_OPEN_FILES: Final = "/proc/self/fd"
_OPTIONS: Final = (socket.TCP_NODELAY, getattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY))


def settle() -> None:
    """Call it first of all in whatever Spark calls.

    Spark's workers run a full garbage collection after each task. What is there by the second call stays for good:
    frozen, it is not looked at again, which saves most of a small task's time.
    """
    global _calls
    _calls += 1
    if _calls <= 2:
        gc.collect()
        gc.freeze()
        speak_up()


class TaskState:
    """What is pickled with each task: a worker unpickles it, then waits for the task's input."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        speak_up()


def speak_up() -> None:
    """Acknowledge at once what has come, and send at once what is to go.

    The JVM sends a task in pieces, each when the one before is acknowledged; and who has nothing to answer yet puts
    that off for 40 ms. Linux forgets that it was told otherwise, so it is told for each task.
    """
    for connection in _tcp_connections():
        with contextlib.suppress(OSError):
            for option in _OPTIONS:
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)


def _tcp_connections() -> Iterator[socket.socket]:
    """All of this process: Spark does not say which is its own. None where the system does not list them."""
    try:
        names = os.listdir(_OPEN_FILES)
    except OSError:
        return
    for name in names:
        try:
            fd = os.dup(int(name))
        except OSError:
            continue  # the listing itself
        try:
            connection = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)  # no socket
            continue
        with connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                yield connection
