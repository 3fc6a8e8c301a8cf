"""Brokers of a test's cluster that are processes of their own, with the same methods as those in threads."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Never, ParamSpec, TypeVar, cast

import barnabas
from barnabas.errors import UsageError
from barnabas.metadata.image import MetadataImage
from barnabas.testing.broker import Broker, BrokerDied
from barnabas.testing.clock import SkewedClock
from barnabas.testing.cluster.launcher import PID, Order, Start, break_disk, start_broker
from barnabas.testing.disk import DiskFault, FaultyDisk
from barnabas.testing.faults import Fault, Faults

__all__ = ["BrokerProcess", "Launcher"]

P = ParamSpec("P")
T = TypeVar("T")

_POLL_S: Final = 0.001
_PACKAGE: Final = str(Path(barnabas.__file__).parent.parent)


class Launcher:
    """The process from which brokers are forked. It ends with the test, and removes their directory then."""

    def __init__(self, data_dir: Path) -> None:
        self._control, far = socket.socketpair()
        self._lock = threading.Lock()
        with far:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.testing.cluster.launcher", str(far.fileno()), str(data_dir)],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGE, os.environ.get("PYTHONPATH")))),
                },
                process_group=0,  # Ctrl-C is for the test, which ends the brokers
            )

    def fork(self) -> tuple[int, Connection]:
        """Returns the process id of a new broker, and the connection to it. Raises BrokerDied."""
        near, far = socket.socketpair()
        with self._lock, near, far:
            try:
                socket.send_fds(self._control, [b"+"], [far.fileno()])
                answer = self._control.recv(PID.size, socket.MSG_WAITALL)
            except ConnectionError:
                answer = b""
            if not answer:
                raise BrokerDied("the process that starts brokers has ended; its error is on stderr")
            return PID.unpack(answer)[0], Connection(near.detach())

    def close(self) -> None:
        self._control.close()
        self._process.wait()


def _image(broker: Broker) -> MetadataImage:
    return broker.image


def _skew(broker: Broker, seconds: float) -> None:
    broker.clock.skew(seconds)


class _Disk(FaultyDisk):
    """Breaks the disk of a broker in another process, also of one that is started later."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.fault: tuple[Any, ...] = ()

    def full(self) -> DiskFault:
        return self._set("full")

    def fail(self) -> DiskFault:
        return self._set("fail")

    def slow(self, seconds: float = 0.1) -> DiskFault:
        FaultyDisk().slow(seconds)  # refuses a time out of range
        return self._set("slow", seconds)

    def hang(self) -> DiskFault:
        return self._set("hang")

    def torn_write(self) -> DiskFault:
        return self._set("torn_write")

    def heal(self) -> None:
        self.fault = ()
        self._call(break_disk, "heal")

    def _set(self, *fault: Any) -> DiskFault:
        self.fault = fault
        self._call(break_disk, *fault)
        return DiskFault(self)


class _Clock(SkewedClock):
    """Sets the clock of a broker in another process, also of one that is started later."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call
        self.skew_s = 0.0

    def skew(self, seconds: float = 3600) -> None:
        super().skew(seconds)
        self.skew_s = seconds
        self._call(_skew, seconds)

    def heal(self) -> None:
        self.skew(0)


class _NoFaults(Faults):
    def _add(self, fault: Fault) -> Never:
        raise UsageError("faults of requests are for brokers in the test's own process; leave processes=True out")


def _there(method: Callable[P, T]) -> Callable[P, T]:
    """Returns a method of Broker that is called in the broker's process."""

    def call(self: "BrokerProcess", *arguments: Any, **keywords: Any) -> T:
        return self.call(method, *arguments, **keywords)

    return cast(Callable[P, T], call)


class BrokerProcess(Broker):
    """A broker in a process of its own, which signals end and hold."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        data_dir: Path,
        log_dirs: int,
        settings: Mapping[str, object],
        patience: float,
        machine: str | None = None,
    ) -> None:
        super().__init__(data_dir=data_dir, log_dirs=log_dirs, settings=settings, patience=patience, machine=machine)
        self._launcher = launcher
        self._pid = 0
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._orders = 0
        """The number of the last order."""
        self._stopped = False
        self._process_disk = _Disk(self._if_running)
        self._process_clock = _Clock(self._if_running)
        self.disk, self.clock = self._process_disk, self._process_clock
        self.faults = _NoFaults(lambda: None)

    create_topics = _there(Broker.create_topics)
    delete_topics = _there(Broker.delete_topics)
    move_leader = _there(Broker.move_leader)
    topics = _there(Broker.topics)
    _append = _there(Broker._append)
    _is_committed = _there(Broker._is_committed)
    records = _there(Broker.records)
    end_offsets = _there(Broker.end_offsets)
    group_state = _there(Broker.group_state)
    committed = _there(Broker.committed)
    lag = _there(Broker.lag)

    @property
    def pid(self) -> int:
        """The id of the process. Raises UsageError if the broker does not run."""
        if self._connection is None:
            raise self._not_running()
        return self._pid

    @property
    def image(self) -> MetadataImage:
        return self.call(_image)

    @property
    def is_running(self) -> bool:
        return self._connection is not None and _is_there(self._pid)

    @property
    def is_paused(self) -> bool:
        return self._stopped

    def call(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Calls a function of a module in the broker's process, with the Broker there and the arguments. Returns or
        raises what the function did; raises BrokerDied if the process has ended."""
        with self._lock:
            connection, pid = self._connection, self.pid
            assert connection is not None
            if self._stopped:
                raise self._held()
            self._orders = wanted = self._orders + 1
            deadline, number = time.monotonic() + self.patience, 0
            try:
                connection.send(Order(wanted, function, arguments, keywords))
                while number != wanted:  # an earlier answer came too late, or a Ctrl-C ended the wait for it
                    if not connection.poll(max(deadline - time.monotonic(), 0)):
                        raise BrokerDied(f"process {pid} of the broker has not answered within {self.patience:g} s")
                    number, succeeded, result = connection.recv()
            except (EOFError, ConnectionError):
                self._wait_for_end()
                raise BrokerDied(f"process {pid} of the broker has ended; its error is on stderr") from None
        if not succeeded:
            raise result
        return cast(T, result)

    def _if_running(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self.is_running and not self._stopped:
            try:
                self.call(function, *arguments)
            except BrokerDied:  # the next start breaks what is to be broken
                if self.is_running:
                    raise

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self, *, lost_dirs: str | Path | Iterable[str | Path] = ()) -> Broker:
        if self.is_running:
            raise UsageError(f"the broker at {self._address} runs already; call stop() or restart()")
        self._end()  # of a process that has ended by itself
        self._pid, self._connection = self._launcher.fork()
        disk_fault, skew_s = self._process_disk.fault, self._process_clock.skew_s
        start = Start(
            self.data_dir, len(self.log_dirs), self._settings, self.patience, disk_fault, skew_s, self._machine
        )
        lost = [lost_dirs] if isinstance(lost_dirs, str | Path) else list(lost_dirs)
        try:
            self._connection.send(start)
            self._address = self.call(start_broker, lost)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        if self.is_running:
            self.resume()
            try:
                self.call(Broker.stop)
            finally:
                self._end()

    def _stop(self) -> None:
        self.stop()

    def kill(self) -> None:
        """Ends the process by SIGKILL."""
        _signal(self.pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        """Closes the connection to the process, if there is one, and waits for its end."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._stopped = False
            if connection is not None:
                connection.close()
                self._wait_for_end()

    def _wait_for_end(self) -> None:
        deadline = time.monotonic() + self.patience
        while _is_there(self._pid):
            if time.monotonic() > deadline:
                raise BrokerDied(f"process {self._pid} of the broker does not end")
            time.sleep(_POLL_S)

    def pause(self) -> None:
        """Holds the process still by SIGSTOP."""
        if not self.is_running:
            raise self._not_running()
        _signal(self._pid, signal.SIGSTOP)
        self._stopped = True
        while not _stands_still(self._pid):
            time.sleep(_POLL_S)

    def resume(self) -> None:
        if self._stopped:
            _signal(self._pid, signal.SIGCONT)
            self._stopped = False

    def reset(self) -> None:
        self.heal()
        self.call(Broker.reset)


def _signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, unless that has ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_there(pid: int) -> bool:
    """Returns whether the process has not ended; the launcher leaves nothing behind of those that have."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _stands_still(pid: int) -> bool:
    """Returns whether all threads of the process are stopped, each of which runs on for a moment after the signal, or
    have ended; also where there is no /proc."""
    return all(_state_of(stat) in "TtZX?" for stat in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state_of(stat: Path) -> str:
    """Returns the letter of the thread's state; "?" where there is none."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "?"
