"""Tells by the kernel whether the process of a broker on this machine still runs: the certain evidence that it is dead.

A process is known by a text: the boot of the machine, the namespace of process ids, the id, the time at which it
started, and a number that tells the brokers of one process apart. A reused process id has another start time. Of a
process of another namespace or boot (a container, another machine) nothing is known here.

The text of a broker of several machines says so. Releases that know no locks (`broker_locks.py`) take another boot for
an earlier one without it.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.log.directories.data_directory import read_boot_id

__all__ = [
    "begin_process",
    "describe_process",
    "end_process",
    "is_of_another_boot",
    "is_of_this_boot",
    "is_running",
    "is_visible",
    "on_end",
    "parse_process",
]

_PF_EXITING: Final = 0x4
"""The kernel's flag of a process that is being torn down."""
_SEVERAL_MACHINES: Final = "|several"
_serials: Final = count(1)
_running: Final[dict[str, list[Callable[[], None]]]] = {}
"""The brokers of this process that have begun and not ended, with what is called at their end."""


class _Process(NamedTuple):
    boot: str
    namespace: str
    pid: int
    started: str
    serial: int
    several_machines: bool = False


def begin_process(*, several_machines: bool = False, boot: str | None = None) -> str:
    """Returns the text of a broker that starts in this process. `boot` is another boot than that of this machine, for a
    broker that is to look like one on another machine."""
    own = _own()
    text = "|".join((own.boot if boot is None else boot, own.namespace, str(own.pid), own.started, str(next(_serials))))
    if several_machines:
        text += _SEVERAL_MACHINES
    _running[text] = []
    return text


def end_process(process: str) -> None:
    """Notes that a broker of this process has ended, while the process goes on."""
    for callback in _running.pop(process, ()):
        callback()


def on_end(process: str, callback: Callable[[], None]) -> bool:
    """Calls back when a broker of this process ends. Returns False if it is none, or has ended."""
    callbacks = _running.get(process)
    if callbacks is None:
        return False
    callbacks.append(callback)
    return True


def is_running(process: str, boot: str | None = None) -> bool:
    """Returns False if the broker has certainly ended; True if it runs or cannot be seen from here. `boot` is another
    boot than that of this machine, for one who looks from another machine."""
    if not process:
        return False  # the broker has stopped, or was announced only
    found = _parse(process)
    if found is None:
        return True  # perhaps of another release
    own = _own()
    if not _is_visible(found, boot):
        return True
    if found.pid == own.pid and found.started == own.started:
        return process in _running
    try:
        return _start_time(found.pid) == found.started
    except OSError:
        return _may_exist(found.pid)


def is_visible(process: str, boot: str | None = None) -> bool:
    """Returns whether `is_running` is certain both ways."""
    found = _parse(process)
    return found is not None and _is_visible(found, boot)


def _is_visible(found: _Process, boot: str | None = None) -> bool:
    own = _own()
    return (found.boot, found.namespace) == (own.boot if boot is None else boot, own.namespace)


def is_of_another_boot(process: str) -> bool:
    """Returns whether the process is of another boot than this one, and its text does not say that its broker may be on
    another machine."""
    found, own = _parse(process), _own()
    if found is None or found.several_machines or "" in (found.boot, own.boot):
        return False
    return found.boot != own.boot


def is_of_this_boot(process: str, boot: str | None = None) -> bool:
    """Returns whether the process is of the kernel that runs here, in whatever namespace: it sees the same locks."""
    found, own = _parse(process), _own().boot if boot is None else boot
    return found is not None and found.boot == own != ""


def describe_process(process: str) -> str:
    """Returns in words which process that is."""
    found, own = _parse(process), _own()
    if found is None:
        return "an unknown process"
    if found.boot != own.boot:
        return f"process {found.pid} of another machine or boot ({found.boot})"
    if found.namespace != own.namespace:
        return f"process {found.pid} of another container ({found.namespace})"
    return f"process {found.pid}{_since(found.started)}"


def _since(started: str) -> str:
    """Returns since when a process of this machine runs, by the ticks from the boot on."""
    try:
        up_s = float(Path("/proc/uptime").read_text().split()[0])
        age_s = up_s - int(started) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return ""
    return time.strftime(", which runs since %Y-%m-%d %H:%M:%S", time.localtime(time.time() - age_s))


def parse_process(process: str) -> int | None:
    """Returns the process id if it is one of this machine that can be watched from here."""
    found = _parse(process)
    if found is None or not _is_visible(found) or found.pid == _own().pid:
        return None
    return found.pid


def _parse(process: str) -> _Process | None:
    own = process.removesuffix(_SEVERAL_MACHINES)
    parts = own.split("|")
    if len(parts) != 5:
        return None
    boot, namespace, pid, started, serial = parts
    try:
        return _Process(boot, namespace, int(pid), started, int(serial), own != process)
    except ValueError:
        return None


def _own() -> _Process:
    global _cached
    pid = os.getpid()
    if _cached is None or _cached.pid != pid:
        namespace = started = ""
        with suppress(OSError):
            namespace = os.readlink("/proc/self/ns/pid")
        with suppress(FileNotFoundError):  # any other error passes, and others would take this process for another one
            started = _start_time(pid) or ""
        _cached = _Process(read_boot_id(), namespace, pid, started, 0)
    return _cached


_cached: _Process | None = None


def _start_time(pid: int) -> str | None:
    """Returns when the process started, in ticks since the boot; None if it has ended and only its parent has not taken
    notice. A process that the kernel is just tearing down counts as ended: it never runs again, and its connections are
    closed some ten milliseconds before it is gone. Raises OSError if /proc does not tell, which is no evidence."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # the name before may contain anything
    return None if fields[0] in "ZX" or int(fields[6]) & _PF_EXITING else fields[19]


def _may_exist(pid: int) -> bool:
    """Returns whether there may be such a process, although /proc does not say that it runs. /proc may hide those of
    other users (hidepid, systemd's ProtectProc), some systems have none, and this process may be out of descriptors."""
    try:
        os.kill(pid, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
