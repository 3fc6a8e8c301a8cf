"""Forks child processes that share this process's modules, and that end when this process does.

A fork takes 2 ms where a new Python would import for 200 ms, and the children share the memory of what they have in
common. It needs a process without other threads.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, NoReturn

__all__ = ["HANDLED_SIGNALS", "ChildProcess", "Nursery"]

HANDLED_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""The signals that the parent handles and that its children begin without handlers for."""
_ORPHAN_STOP_TIMEOUT_S: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1


class ChildProcess(NamedTuple):
    """A forked process, with the ends of the pipes that its output comes from. Reading from them never waits."""

    pid: int
    stdout: int
    stderr: int


class Nursery:
    """Forks children.

    Each child waits for the end of a pipe that only the parent can write to. The kernel closes it whatever ends the
    parent, at any moment from the fork on; unlike Linux's parent death signal, all systems have that. That signal is
    for a child that is stopped: it has to go on before it can end.
    """

    def __init__(self) -> None:
        self._lifeline, self._held = os.pipe()

    def fork(self, run: Callable[[], int], private: Collection[int]) -> ChildProcess:
        """Starts a child that calls `run` and ends with the exit code it returns. `private` are descriptors that the
        child must not have. Raises OSError."""
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as writers:
            pipes = []
            for _ in range(2):
                reader, writer = os.pipe()
                undo.callback(os.close, reader)
                writers.callback(os.close, writer)
                os.set_blocking(reader, False)
                pipes.append((reader, writer))
            (stdout, child_stdout), (stderr, child_stderr) = pipes
            # A signal between the fork and the child's own handlers must wait for those.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
            try:
                pid = os.fork()
                if pid == 0:
                    foreign = {stdout, stderr, self._held, *private}
                    self._be_child(run, (child_stdout, child_stderr), foreign, mask)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            undo.pop_all()
        return ChildProcess(pid, stdout, stderr)

    def _be_child(
        self, run: Callable[[], int], output: tuple[int, int], foreign: Collection[int], mask: Collection[int]
    ) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in HANDLED_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP for all processes
                    signal.signal(number, signal.SIG_DFL)
            for descriptor, writer in enumerate(output, start=1):
                os.dup2(writer, descriptor)
                os.close(writer)
            for descriptor in foreign:
                os.close(descriptor)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # none is for that thread
            _continue_without_parent()
            threading.Thread(target=self._end_with_parent, name="barnabas-lifeline", daemon=True).start()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = run()
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            # Whatever the parent has registered for its own end is none of the child's business.
            os._exit(code)

    def _end_with_parent(self) -> None:
        os.read(self._lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ORPHAN_STOP_TIMEOUT_S)
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        """Ends the children that are still there."""
        os.close(self._held)
        os.close(self._lifeline)


def _continue_without_parent() -> None:
    """Has the kernel let this process go on when its parent ends, if it is stopped (SIGSTOP) then. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
