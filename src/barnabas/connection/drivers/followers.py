"""Threads that wait for a result while another one polls."""

import contextlib
from collections import deque
from collections.abc import Callable

from barnabas.connection.drivers.waker import Follower

__all__ = ["Followers"]


class Followers:
    """All of them. Under the driver's lock."""

    def __init__(self) -> None:
        self._waiting: deque[Follower] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, done: Callable[[], bool]) -> Follower:
        """It waits from now on, for `done`."""
        follower = Follower(done)
        self._waiting.append(follower)
        return follower

    def discard(self, follower: Follower) -> None:
        """It waits no more, whether its bell rang or not."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(follower)

    def wake(self, *, everyone: bool) -> None:
        """Those for whom it has happened."""
        if not self._waiting:
            return
        for follower in [f for f in self._waiting if everyone or f.done()]:
            self._waiting.remove(follower)
            follower.ring()

    def wake_one(self) -> None:
        """The one that has waited longest: it has to poll now."""
        self._waiting.popleft().ring()

    def clear(self) -> None:
        """In a forked child, which has none of the threads."""
        self._waiting.clear()
