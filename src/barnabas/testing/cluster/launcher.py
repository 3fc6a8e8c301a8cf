"""Forks the brokers of a test's cluster that are processes of their own: `python -m barnabas.testing.cluster.launcher`.

What a broker imports takes half a second, so one process imports it for all of them. It has no threads, unlike the
test, and takes requests on a socket: each comes with the descriptor of the connection on which the new broker gets its
orders. A broker ends when that connection does, and the launcher with all brokers when its socket is closed; it removes
their directory then: nothing outlives the test.
"""

import contextlib
import logging
import os
import pickle
import shutil
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple, Never

from barnabas.broker.supervisor.broker_process import preload
from barnabas.errors import BarnabasError
from barnabas.testing.broker import Broker

__all__ = ["PID", "Order", "Start", "break_disk", "start_broker"]

PID: Final = struct.Struct(">i")
"""The launcher's answer: the process id."""
_IGNORED: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)
"""The signals that the launcher ignores, unlike its brokers."""


class Start(NamedTuple):
    """The first message to a new broker."""

    data_dir: Path
    log_dirs: int
    settings: Mapping[str, object]
    patience: float
    disk_fault: tuple[Any, ...]
    """The method of FaultyDisk with its arguments; empty for none."""
    skew_s: float
    machine: str | None


class Order(NamedTuple):
    """Each later message: a function of a module, which is called with the broker and these arguments. The answer is
    (number, True, result) or (number, False, error): nobody may wait for the one before any more."""

    number: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def start_broker(broker: Broker, lost_dirs: Iterable[str | Path]) -> str:
    """Starts the broker of this process. Returns its address."""
    return broker.start(lost_dirs=lost_dirs).bootstrap_servers


def break_disk(broker: Broker, method: str, *arguments: Any) -> None:
    """Calls a method of the broker's disk."""
    getattr(broker.disk, method)(*arguments)


def _serve(connection: Connection) -> None:
    """Does what the test asks of a broker, until the connection ends."""
    start: Start = connection.recv()
    logging.basicConfig(
        level=logging.WARNING, format=f"broker {start.settings['node.id']}: %(levelname)s %(message)s", force=True
    )
    broker = Broker(
        data_dir=start.data_dir,
        log_dirs=start.log_dirs,
        settings=start.settings,
        patience=start.patience,
        machine=start.machine,
    )
    if start.disk_fault:
        break_disk(broker, *start.disk_fault)
    broker.clock.skew(start.skew_s)
    while True:
        order: Order = connection.recv()
        answer: tuple[int, bool, Any]
        try:
            answer = order.number, True, order.function(broker, *order.arguments, **order.keywords)
        except Exception as error:
            error.add_note("In the process of the broker:\n" + traceback.format_exc())
            answer = order.number, False, error
        try:
            connection.send(answer)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            untold = BarnabasError(f"{answer[2]!r} cannot be told to the test: {error}")
            connection.send((order.number, False, untold))


def _launch(control: socket.socket, data_dir: str) -> None:
    preload()
    # brokers that have ended leave nothing behind; SIGHUP comes if the test is killed while a broker is paused
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    while True:
        request, descriptors, *_ = socket.recv_fds(control, 1, 1)
        if not request:
            _end(data_dir)
        pid = os.fork()
        if pid == 0:
            _run(control, descriptors[0])
        os.close(descriptors[0])
        control.sendall(PID.pack(pid))


def _end(data_dir: str) -> Never:
    """Ends all brokers and removes their directory, then ends this process."""
    for number in (signal.SIGTERM, signal.SIGCONT):  # also brokers that are paused; the group has nobody else
        os.killpg(0, number)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)  # returns when all have ended, since SIGCHLD is ignored
    shutil.rmtree(data_dir, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("SIGKILL ends a process")


def _run(control: socket.socket, descriptor: int) -> None:
    """Is a broker, and ends the process when the test does."""
    status = 1
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        control.close()
        _serve(Connection(descriptor))
    except (EOFError, ConnectionError):
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _launch(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
