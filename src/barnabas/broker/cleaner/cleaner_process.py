"""Runs the cleaner process: starts it for the first job, writes to it and reads from it on the event loop."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import barnabas
from barnabas.log.cleaner.cleaner_protocol import EVENT_MAX_BYTES, BrokenFrame, CleaningJob, Frames

__all__ = ["CleanerProcess", "exit_description"]

_READ_BYTES: Final = 1 << 16
_REAP_INTERVAL_S: Final = 0.01
_KILLED_TIMEOUT_S: Final = 10.0
IDLE_S: Final = 30.0
"""Twice the usual interval between two searches for dirty logs."""
_COMMAND: Final = ("-P", "-m", "barnabas.log.cleaner.cleaner_worker")
"""-P: the process must not import modules from the broker's working directory."""


class CleanerProcess:
    """The `CleanerWorker` of a broker. All methods are called on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_event: Callable[[dict[str, Any]], None],
        on_end: Callable[[str], None],
        idle_s: float = IDLE_S,
    ) -> None:
        """`on_event` gets each message, `on_end` a text that says how the process ended."""
        self._loop = loop
        self._on_event = on_event
        self._on_end = on_end
        self._idle_s = idle_s
        self._process: subprocess.Popen[bytes] | None = None
        self._frames = Frames(EVENT_MAX_BYTES)
        self._unsent = b""
        self._is_closed = False
        self._unanswered: CleaningJob | None = None
        """The job to which the process has not responded. If the process ends without an error, it has not seen the
        job."""

    @property
    def pid(self) -> int | None:
        """The process id; None while there is no process."""
        return self._process.pid if self._process is not None else None

    def submit(self, job: CleaningJob) -> None:
        """Sends a job, to a new process if necessary. Raises OSError if none can be started."""
        if self._process is None:
            self._start()
        self._unanswered = job
        self._unsent += job.pack()
        self._send()

    def kill(self) -> None:
        """Kills the process. `on_end` is called when it has ended."""
        self._unanswered = None  # the process may be ending already: its job is no longer needed
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Kills the process and waits for its end. No callback is called any more."""
        process = self._process
        self._is_closed = True
        if process is not None:
            process.kill()
            self._forget(process)
            process.wait(_KILLED_TIMEOUT_S)

    def _start(self) -> None:
        if not sys.executable:
            raise OSError("this Python cannot start another one (sys.executable is empty)")
        package = str(Path(barnabas.__file__).parent.parent)
        known = os.environ.get("PYTHONPATH")
        process = subprocess.Popen(
            [sys.executable, *_COMMAND, str(self._idle_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{known}" if known else package},
            start_new_session=True,  # Ctrl-C must reach only the broker, which ends its cleaner
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._frames = Frames(EVENT_MAX_BYTES)
        self._unsent = b""
        self._process = process
        self._loop.add_reader(process.stdout.fileno(), self._receive, process)

    # -- the pipes -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        fd = process.stdin.fileno()
        try:
            self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsent = b""  # it has ended: its output says so, too
        if self._unsent:
            self._loop.add_writer(fd, self._send)
        else:
            self._loop.remove_writer(fd)

    def _receive(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            data = os.read(process.stdout.fileno(), _READ_BYTES)
            messages = self._frames.feed(data)
        except BlockingIOError:
            return
        except BrokenFrame:
            process.kill()
            data, messages = b"", []
        for message in messages:
            self._unanswered = None
            self._on_event(message)
        if not data and process is self._process:
            self._forget(process)
            self._reap(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        for pipe, remove in ((process.stdout, self._loop.remove_reader), (process.stdin, self._loop.remove_writer)):
            assert pipe is not None
            remove(pipe.fileno())
            with contextlib.suppress(OSError):
                pipe.close()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        """Handles the end of the process's output. The process itself ends in a moment."""
        code = process.poll()
        if self._is_closed:
            return
        if code is None:
            self._loop.call_later(_REAP_INTERVAL_S, self._reap, process)
            return
        if self._process is not None:
            return  # another job has come meanwhile, for another process: nobody waits for this one
        unseen, self._unanswered = self._unanswered, None
        if code == 0 and unseen is not None:
            try:
                self.submit(unseen)  # the idle process ended just before the job arrived
            except OSError as error:
                self._on_end(f"cannot be started: {error}")
            return
        self._on_end(exit_description(code))


def exit_description(code: int) -> str:
    """Returns how a process with this exit code of `subprocess` has ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-code}"
