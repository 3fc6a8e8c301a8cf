"""Starts the processes of several brokers, restarts those that die, hands signals on, and stops them all.

One loop does all of it by poll: children are forked from this process, so it has no other threads. Signal handlers only
note the signal and wake the loop.
"""

import contextlib
import json
import logging
import math
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, Final, Protocol

from barnabas.broker.supervisor.child_process import HANDLED_SIGNALS, ChildProcess, Nursery
from barnabas.broker.supervisor.line_writer import Lines, LineWriter
from barnabas.broker.supervisor.restart_backoff import RestartBackoff
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import UsageError

__all__ = ["NOT_YET", "USAGE_ERROR", "Facts", "LogStream", "Supervised", "Supervisor"]

USAGE_ERROR: Final = 2
"""The exit code of a process that only the operator can help."""
NOT_YET: Final = 75
"""The exit code of a start that may succeed later."""
_STOP_TIMEOUT_S: Final = 30.0
_ONE_INTERRUPT_S: Final = 0.5
"""The time in which further SIGINTs are the same Ctrl-C: programs between the terminal and this one repeat it."""
_OUTPUT_TIMEOUT_S: Final = 2.0
_READ_BYTES: Final = 64 * 1024
_EVENT: Final = b'{"event": '

_log = logging.getLogger("barnabas.supervisor")

Facts = Mapping[str, Any]
"""A line of JSON in which a process reports an event: `ready`, or `usage-error` with a message, and in `of_directory`
whether only brokers with the same data directory are concerned."""


class Supervised(Protocol):
    """The work of a process."""

    name: str
    """Stands before each line that the process writes, and in messages."""

    def run(self) -> int:
        """Runs in the process, and returns its exit code. Reports events as lines of JSON on standard output."""

    def note_ready(self, facts: Facts) -> None:
        """Is called in the supervisor each time that the process has become ready."""


class _Child:
    """One process, or the pause before its next start."""

    def __init__(self, work: Supervised, take_event: Callable[["_Child", bytes], bool]) -> None:
        self.work = work
        self.process: ChildProcess | None = None
        self.open: dict[int, Lines] = {}
        """The lines that the output from each descriptor is added to."""
        self.stdout = Lines(f"{work.name} | ", partial(take_event, self))
        self.stderr = Lines(f"{work.name} | ")
        self.backoff = RestartBackoff()
        self.starts = 0
        self.started_at = 0.0
        self.starts_at: float | None = 0.0
        """The time of the next start; None while the process runs, and when it is not to be started again."""
        self.ready: Facts | None = None
        self.complaint = ""
        self.has_no_directory = False
        """Whether its last start failed because of its own data directory."""
        self.refused_since = -math.inf
        """The time of its last start that was refused and may succeed later."""


class Supervisor:
    """Runs processes until a signal ends them all."""

    def __init__(
        self,
        works: Sequence[Supervised],
        on_ready: Callable[[Sequence[Facts]], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
        stop_timeout_s: float = _STOP_TIMEOUT_S,
    ) -> None:
        """`on_ready` gets the facts of all processes once each has reported that it is ready, except for those whose
        data directory cannot be used, and those that still wait when all others are ready. It may raise UsageError."""
        self._children = [_Child(work, self._take_event) for work in works]
        self._on_ready = on_ready
        self._clock = clock
        self._stop_timeout_s = stop_timeout_s
        self._stdout = Lines("")
        self._stderr = Lines("")
        self._writers = (
            LineWriter(1, [self._stdout, *(child.stdout for child in self._children)]),
            LineWriter(2, [self._stderr, *(child.stderr for child in self._children)]),
        )
        self._signals: list[int] = []
        self._interrupted_at: float | None = None
        self._told_ready = False
        self._ready_at = -math.inf
        """The time when the last process became ready."""
        self._is_stopping = False
        self._kill_at: float | None = None
        self._all_ended_well = True
        self._error: UsageError | None = None

    @property
    def log_stream(self) -> "LogStream":
        """The stream for this process's own log, which never waits for a reader."""
        return LogStream(self._stderr)

    def say(self, line: str) -> None:
        """Writes a line to standard output."""
        self._stdout.feed(line.encode() + b"\n")

    def run(self) -> int:
        """Returns the exit code: 0 when a signal has ended all processes and each has ended well. Raises UsageError if
        a process cannot be started for a reason that only the operator can remove. A data directory that cannot be used
        is one only if no process has another."""
        self._nursery = Nursery()
        try:
            with self._signals_noted() as self._wakeup:
                self._act()
                while self._is_busy():
                    self._poll()
                    self._act()
        finally:
            self._nursery.close()
            for writer in self._writers:
                writer.write_all(_OUTPUT_TIMEOUT_S)
        if self._error is not None:
            raise self._error
        return 0 if self._all_ended_well else 1

    def _is_busy(self) -> bool:
        return any(child.process is not None or child.starts_at is not None for child in self._children)

    @contextlib.contextmanager
    def _signals_noted(self) -> Iterator[int]:
        """Yields a descriptor that becomes readable with each signal."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()  # by nohup
        before = {
            number: signal.signal(number, self._note_signal) for number in HANDLED_SIGNALS if number not in ignored
        }
        self._private = (reader, writer)
        try:
            yield reader
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            signal.set_wakeup_fd(wakeup_before)
            os.close(reader)
            os.close(writer)

    def _note_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Does what signals, ends of processes and the time ask for."""
        self._obey_signals()
        self._reap()
        now = self._clock.monotonic()
        for child in self._children:
            if child.starts_at is not None and child.starts_at <= now:
                self._start(child, now)
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            self._kill(f"has not ended within {self._stop_timeout_s:g} s")

    def _poll(self) -> None:
        """Waits for output, room for output, a signal or the time of the next action."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        readable: dict[int, _Child] = {}
        for child in self._children:
            for descriptor, lines in child.open.items():
                if lines.has_room:
                    poll.register(descriptor, select.POLLIN)
                    readable[descriptor] = child
        writable = {writer.descriptor: writer for writer in self._writers if writer.has_lines()}
        for descriptor in writable:
            poll.register(descriptor, select.POLLOUT)
        times = [child.starts_at for child in self._children if child.starts_at is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        timeout_ms = max(0.0, min(times) - self._clock.monotonic()) * 1000 if times else None
        for descriptor, _ in poll.poll(timeout_ms):
            if descriptor in readable:
                self._read(readable[descriptor], descriptor)
            elif descriptor in writable:
                writable[descriptor].write()
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(descriptor, _READ_BYTES)

    # --- signals ----------------------------------------------------------------------------------------------------

    def _obey_signals(self) -> None:
        """Stops at the first signal. The second Ctrl-C kills: others are repeated by whatever manages the process."""
        while self._signals:
            number = self._signals.pop(0)
            now = self._clock.monotonic()
            if not self._is_stopping:
                self._stop(f"{signal.Signals(number).name}: stopping")
            if number != signal.SIGINT:
                continue
            if self._interrupted_at is None:
                self._interrupted_at = now
            elif now - self._interrupted_at >= _ONE_INTERRUPT_S:
                self._kill("has not ended before the second Ctrl-C")

    def _stop(self, reason: str) -> None:
        """Asks all processes at once to end: in a controlled shutdown one may need another."""
        self._is_stopping = True
        self._kill_at = self._clock.monotonic() + self._stop_timeout_s
        running = [child for child in self._children if child.process is not None]
        _log.info("%s %s", reason, ", ".join(child.work.name for child in running) or "before any process runs")
        for child in self._children:
            child.starts_at = None
            self._send(child, signal.SIGTERM)

    def _kill(self, reason: str) -> None:
        for child in self._children:
            if child.process is not None:
                _log.error("%s (pid %d) %s: killing it", child.work.name, child.process.pid, reason)
                self._send(child, signal.SIGKILL)

    @staticmethod
    def _send(child: _Child, number: int) -> None:
        # A process that has not been waited for keeps its number, so no other one can get the signal.
        if child.process is not None:
            os.kill(child.process.pid, number)

    # --- start and end of a process ---------------------------------------------------------------------------------

    def _start(self, child: _Child, now: float) -> None:
        private = {*self._private, *(descriptor for each in self._children for descriptor in each.open)}
        child.starts += 1
        child.started_at, child.starts_at = now, None
        child.complaint = ""
        try:
            child.process = self._nursery.fork(child.work.run, private)
        except OSError as error:
            self._start_later(child, f"{child.work.name} cannot be started ({error.strerror})")
            return
        child.open = {child.process.stdout: child.stdout, child.process.stderr: child.stderr}

    def _start_later(self, child: _Child, event: str) -> None:
        now = self._clock.monotonic()
        pause_s = child.backoff.after_run(now - child.started_at)
        child.starts_at = now + pause_s
        _log.warning("%s: starting it again in %g s", event, pause_s)

    def _reap(self) -> None:
        running = {child.process.pid: child for child in self._children if child.process is not None}
        ended = []
        while running:  # others may be adopted: this process may be the first one of a container
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            child = running.pop(pid, None)
            if child is not None:
                child.process, child.ready = None, None
                ended.append((child, pid, os.waitstatus_to_exitcode(status)))
        # Ctrl-C reaches the children, too. It has reached this process before one of them could end from it.
        self._obey_signals()
        for child, pid, code in ended:
            for descriptor in list(child.open):
                self._read_to_end(child, descriptor)
            self._note_end(child, pid, code)

    def _note_end(self, child: _Child, pid: int, code: int) -> None:
        ending = f"died with signal {-code}" if code < 0 else f"ended with exit code {code}"
        event = f"{child.work.name} (pid {pid}) {ending}" + (f": {child.complaint}" if child.complaint else "")
        if self._is_stopping:
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):  # the signal came before the process handled it
                self._all_ended_well = False
                if self._error is None:
                    _log.error("%s", event)
        elif code == USAGE_ERROR and child.starts == 1 and self._concerns_all(child):
            self._error = UsageError(f"{child.work.name}: {child.complaint or event}")
            self._stop(f"{child.work.name} cannot start: stopping")
        else:
            if code == NOT_YET:
                child.refused_since = child.started_at
            self._start_later(child, event)
            self._tell_if_ready()

    def _concerns_all(self, child: _Child) -> bool:
        return not child.has_no_directory or all(each.has_no_directory for each in self._children)

    # --- output of a process ----------------------------------------------------------------------------------------

    def _read(self, child: _Child, descriptor: int) -> bool:
        """Returns whether there may be more."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            child.open[descriptor].feed(data)
        else:
            self._close(child, descriptor)
        return bool(data)

    def _read_to_end(self, child: _Child, descriptor: int) -> None:
        """Reads what a process has left behind, at most as much as a pipe holds. The pipe may have further writers,
        which the process has started."""
        while self._read(child, descriptor):
            pass
        if descriptor in child.open:
            self._close(child, descriptor)

    @staticmethod
    def _close(child: _Child, descriptor: int) -> None:
        child.open.pop(descriptor).end()
        os.close(descriptor)

    def _take_event(self, child: _Child, line: bytes) -> bool:
        """Returns whether the line reports an event."""
        if not line.startswith(_EVENT):
            return False
        try:
            facts = json.loads(line)
        except ValueError:
            return False
        if facts["event"] == "usage-error":
            child.complaint = str(facts["message"])
            child.has_no_directory = bool(facts["of_directory"])
        elif facts["event"] == "ready":
            self._note_ready(child, facts)
        else:
            return False
        return True

    def _note_ready(self, child: _Child, facts: Facts) -> None:
        if child.process is None:  # it has died since
            return
        _log.info("%s (pid %d) is ready", child.work.name, child.process.pid)
        child.ready, child.has_no_directory = facts, False
        self._ready_at = self._clock.monotonic()
        child.work.note_ready(facts)
        self._tell_if_ready()

    def _tell_if_ready(self) -> None:
        facts = [child.ready for child in self._children if child.ready is not None]
        settled = all(
            child.ready is not None or child.has_no_directory or child.refused_since >= self._ready_at
            for child in self._children
        )
        if settled and facts and not self._told_ready and not self._is_stopping:
            self._told_ready = True
            try:
                self._on_ready(facts)
            except UsageError as error:
                self._error = error
                self._stop("nobody can be told that all are ready: stopping")


class LogStream:
    """Takes what a logging handler writes. Drops it while there is no room."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def write(self, text: str) -> int:
        """Returns the length of the text, as a file does."""
        if self._lines.has_room:
            self._lines.feed(text.encode(errors="backslashreplace"))
        return len(text)
