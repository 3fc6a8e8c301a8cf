"""Locks that brokers hold for life beside the file of their registry: the certain evidence of whether one runs that
cannot be seen, because it has process ids of its own (a container), or the kernel's boot id is another there.

The kernel frees the lock with the process, whatever ends it, and tells that in all namespaces; a file server tells it
on all machines. The descriptor is closed in a program that a broker starts, so no such program keeps it.
"""

import fcntl
import glob
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas.registry.processes import is_of_another_boot, is_running, is_visible
from barnabas.registry.registry import Evidence

__all__ = ["BrokerLocks"]

_WAIT_MAX_S: Final = 1.0
"""The longest wait for a lock: others hold it for a moment to look, and the kernel takes a while to tear a process
down."""
_PAUSE_S: Final = 0.005

_log = logging.getLogger("barnabas.registry")


class BrokerLocks:
    """The locks beside one file. A broker has an object of its own, which holds its lock."""

    def __init__(self, registry: Path, is_running: Callable[[str], bool] = is_running) -> None:
        """`is_running` says whether the process of a registration may be alive."""
        self._registry = registry
        self._is_running = is_running
        self._descriptor = -1
        self._held: int | None = None

    def evidence(self, node_id: int, process: str, has_lock: bool) -> Evidence:
        """Returns what is certain about a broker, by its process and whether it has taken its lock."""
        if not self._is_running(process):
            return Evidence.ENDED
        if is_visible(process):
            return Evidence.RUNS
        held = _is_locked(self.path(node_id)) if has_lock else None
        if held is not None:
            return Evidence.RUNS if held else Evidence.ENDED
        # Brokers of releases that know no locks share a file on one machine only.
        return Evidence.ENDED if not has_lock and is_of_another_boot(process) else Evidence.UNSEEN

    def may_run(self, node_id: int, process: str, has_lock: bool) -> bool:
        return self.evidence(node_id, process, has_lock) is not Evidence.ENDED

    def path(self, node_id: int) -> Path:
        return self._registry.with_name(f"{self._registry.name}-broker-{node_id}.lock")

    def holds(self, node_id: int) -> bool:
        """Returns whether this object holds the lock of the broker."""
        return self._held == node_id

    def hold(self, node_id: int) -> bool:
        """Takes the lock of a broker, and keeps it. Returns False if another process has it; True also where there are
        no locks, which `holds` tells."""
        if self.holds(node_id):
            return True
        self.release()
        try:
            descriptor = os.open(self.path(node_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._tell(node_id, error)
            return True
        deadline = time.monotonic() + _WAIT_MAX_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_PAUSE_S)
                    continue
                os.close(descriptor)
                return False
            except OSError as error:
                os.close(descriptor)
                self._tell(node_id, error)
                return True
            self._descriptor, self._held = descriptor, node_id
            return True

    def _tell(self, node_id: int, error: OSError) -> None:
        _log.warning(
            "%s cannot be locked: %s; brokers in other containers cannot see when this one has died",
            *(self.path(node_id), error.strerror),
        )

    def others_are_held(self) -> bool:
        """Returns whether a process has the lock of any other broker than the one whose lock is held here."""
        own = None if self._held is None else self.path(self._held)
        pattern = f"{glob.escape(self._registry.name)}-broker-*.lock"
        return any(_is_locked(path) for path in self._registry.parent.glob(pattern) if path != own)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._held = -1, None


def _is_locked(path: Path) -> bool | None:
    """Returns whether a process has this lock; None if that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
