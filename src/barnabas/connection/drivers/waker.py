"""Lets threads sleep: on the sockets, with a pipe by which other threads and signals end the poll, or on a lock.

This module is never compiled: in plain Python the interpreter handles signals before the thread sleeps.
"""

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable

from barnabas.connection.drivers.poller import READABLE, new_poller
from barnabas.connection.drivers.signals import HELD, in_main_thread

__all__ = ["Follower", "Waker"]

_wakers: "weakref.WeakSet[Waker]" = weakref.WeakSet()


class Waker:
    """Polls the sockets, also those that another thread registers meanwhile. `on_fork` is called in a forked child."""

    def __init__(self, on_fork: Callable[[], None]) -> None:
        self.on_fork = on_fork
        self.poller = new_poller()
        self.pipe = os.pipe()
        for fd in self.pipe:
            os.set_blocking(fd, False)
        self.poller.register(self.pipe[0], READABLE)
        _wakers.add(self)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Polls. A signal that comes just before the system call does not interrupt the call, and Ctrl-C would wait for
        its end: so signals write into the pipe meanwhile, unless the application has set another descriptor."""
        if not in_main_thread():
            return self.poller.poll(timeout)
        mine = self.pipe[1]  # after a close in another thread, the number may belong to another file
        try:
            before = signal.set_wakeup_fd(mine, warn_on_full_buffer=False)
            if before >= 0:
                signal.set_wakeup_fd(before)
            with HELD.through:
                return self.poller.poll(timeout)
        finally:
            theirs = signal.set_wakeup_fd(-1)
            if theirs not in (-1, mine):
                signal.set_wakeup_fd(theirs)

    def wake(self) -> None:
        """Ends the poll. Takes no lock, so that signal handlers may call it."""
        with contextlib.suppress(OSError):  # the pipe is full, so the poll ends anyway, or closed
            os.write(self.pipe[1], b"\0")

    def drain(self) -> None:
        """Empties the pipe."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.pipe[0], 4096)

    def close(self) -> None:
        """Closes poller and pipe. A second call does nothing."""
        if self.pipe[0] >= 0:
            self.poller.close()
            for fd in self.pipe:
                os.close(fd)
            self.pipe = (-1, -1)


class Follower:
    """A thread that waits while another one polls."""

    __slots__ = ("_bell", "done")

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done
        self._bell = threading.Lock()
        self._bell.acquire()

    def ring(self) -> None:
        """Wakes the thread. Called once, by the thread that removes the follower from the waiting ones."""
        self._bell.release()

    def wait(self, timeout: float) -> None:
        """Waits until `ring` is called."""
        self._bell.acquire(timeout=timeout)


def _forked() -> None:
    for waker in list(_wakers):
        waker.on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
