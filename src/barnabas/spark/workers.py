"""Makes Spark's Python workers quick in a session with Spark's defaults: less garbage collection, and no delayed
acknowledgements on the TCP connections between workers and the JVM."""

import contextlib
import gc
import logging
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["UNIX_SOCKETS", "TaskState", "log_missing_settings", "prepare_worker", "stop_delayed_acknowledgements"]

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_log = logging.getLogger("barnabas.spark")

_calls = 0
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 * 1024 * 1024
_OPEN_FILES: Final = "/proc/self/fd"
_OPTIONS: Final = (socket.TCP_NODELAY, getattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY))


def prepare_worker() -> None:
    """Prepares the process for tasks; called first in all methods that Spark calls.

    Spark's workers run a full garbage collection after each task. The objects that exist by the second call are frozen:
    the collector does not visit them again, which saves most of a small task's time. A process that is no worker, such
    as that of a stream's source, is started anew for each query, so there is nothing to gain.
    """
    global _calls
    _calls += 1
    if _calls == 1:
        _keep_memory()
    if _calls > 2:
        return
    if _serves_many():
        gc.collect()
        gc.freeze()
    stop_delayed_acknowledgements()


def _serves_many() -> bool:
    """Returns whether this process is a fork of Spark's daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


def _keep_memory() -> None:
    """Has glibc keep freed memory: a fetch's answer is some megabytes, and so is the next one. glibc would give such
    pieces back to the system, which then clears the next one page by page: a fifth of a reading task's time."""
    with contextlib.suppress(ImportError, OSError, TypeError, AttributeError):  # no glibc
        import ctypes

        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_M_TRIM_THRESHOLD, 2 * _KEPT_BYTES)


class TaskState:
    """State that is pickled with each task: a worker unpickles it, then waits for the task's input."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        stop_delayed_acknowledgements()


def stop_delayed_acknowledgements() -> None:
    """Turns delayed acknowledgements and Nagle's algorithm off on all TCP connections.

    The JVM sends a task in pieces, each when the one before is acknowledged, and a side that has nothing to answer yet
    delays that by 40 ms. Linux forgets the setting, so it is set for each task.
    """
    for connection in _tcp_connections():
        with contextlib.suppress(OSError):
            for option in _OPTIONS:
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)


def _tcp_connections() -> Iterator[socket.socket]:
    """Yields all TCP connections of this process: Spark does not say which is its own. None where the system does not
    list them."""
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


def log_missing_settings() -> None:
    """Logs the session's settings that make tasks slow. Called where Spark plans a query."""
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        _log.info(
            "%s is off: tasks that run other Python than ours take some 40 ms longer;"
            " barnabas.spark.session_settings() has what to start a session with",
            UNIX_SOCKETS,
        )
