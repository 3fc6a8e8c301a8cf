"""Watches the processes of other brokers on this machine, so that a dead one is noticed at once."""

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from barnabas.registry.processes import is_running, on_end, parse_process

__all__ = ["Liveness", "ProcessLiveness", "Watch"]

Watch = Callable[[], None]
"""Ends a watch."""


class Liveness(Protocol):
    """Tells the ends of other brokers."""

    def watch(self, process: str, on_exit: Callable[[], None]) -> Watch:
        """Calls `on_exit` on the event loop once when the process has ended, soon if it has already. Where that cannot
        be seen, nothing is called: the registry is asked from time to time."""


class ProcessLiveness:
    """Watches processes by pidfds, and brokers of this process by their stop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def watch(self, process: str, on_exit: Callable[[], None]) -> Watch:
        loop = self._loop
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                on_exit()

        def cancel() -> None:
            nonlocal ended
            ended = True

        def end_soon() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)

        if not is_running(process):
            end_soon()
            return cancel
        if on_end(process, end_soon):
            return cancel
        pid = parse_process(process)
        descriptor = None if pid is None else _pidfd(pid)
        if descriptor is None:
            return cancel

        def close() -> None:
            nonlocal descriptor
            if descriptor is not None:
                loop.remove_reader(descriptor)
                os.close(descriptor)
                descriptor = None

        def exited() -> None:
            close()
            end()

        def stop() -> None:
            cancel()
            close()

        loop.add_reader(descriptor, exited)
        if not is_running(process):  # the process id was used again before the descriptor was opened
            close()
            end_soon()
        return stop


def _pidfd(pid: int) -> int | None:
    """Returns a descriptor that is readable when the process has ended; None where the system has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
