"""Polls sockets: by epoll on Linux, by kqueue on macOS and the BSDs.

Both notice descriptors that another thread registers during a poll, which poll and select do not.
"""

import select
from typing import Any, Final, Protocol

__all__ = ["READABLE", "WRITABLE", "Poller", "new_poller"]

READABLE: Final = 1
WRITABLE: Final = 4
"""The values of EPOLLIN and EPOLLOUT, on every system."""
_EVENTS_MAX: Final = 1024


class Poller(Protocol):
    """The part of select.epoll that the driver uses."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def modify(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


def new_poller() -> Poller:
    """Returns a poller of the best kind that the system has."""
    epoll: Any = getattr(select, "epoll", None)
    made: Poller = epoll() if epoll is not None else _KqueuePoller()
    return made


class _KqueuePoller:
    """epoll's calls on a kqueue, which has one event for each direction."""

    def __init__(self) -> None:
        system: Any = select  # typeshed has kqueue only on systems that have it
        self._event = system.kevent
        self._queue = system.kqueue()
        self._filters = {READABLE: system.KQ_FILTER_READ, WRITABLE: system.KQ_FILTER_WRITE}
        self._masks = {number: mask for mask, number in self._filters.items()}
        self._add, self._delete = system.KQ_EV_ADD, system.KQ_EV_DELETE
        self._registered: dict[int, int] = {}

    def register(self, fd: int, eventmask: int, /) -> None:
        self._change(fd, 0, eventmask)

    def modify(self, fd: int, eventmask: int, /) -> None:
        self._change(fd, self._registered[fd], eventmask)

    def unregister(self, fd: int, /) -> None:
        self._change(fd, self._registered[fd], 0)

    def _change(self, fd: int, before: int, after: int) -> None:
        """Changes the watched events. Raises OSError as epoll does, also for a descriptor that was closed."""
        changes = [
            self._event(fd, number, self._add if after & mask else self._delete)
            for mask, number in self._filters.items()
            if (before ^ after) & mask
        ]
        if after:
            self._registered[fd] = after
        else:
            self._registered.pop(fd, None)
        if changes:
            self._queue.control(changes, 0, 0)

    def poll(self, timeout: float, /) -> list[tuple[int, int]]:
        found: dict[int, int] = {}
        for event in self._queue.control(None, _EVENTS_MAX, timeout if timeout >= 0 else None):
            found[event.ident] = found.get(event.ident, 0) | self._masks[event.filter]
        return list(found.items())

    def close(self) -> None:
        self._queue.close()
