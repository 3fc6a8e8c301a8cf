"""Calls back after the requests of a turn of the event loop, and so once for all of them."""

import asyncio
from collections.abc import Callable, Sized
from typing import Final

__all__ = ["AfterRequests"]


class AfterRequests:
    """Calls back when the requests of this turn are handled: in the same turn if the loop has nothing else to call, in
    the next one otherwise. A turn of its own costs more than to answer a small request."""

    __slots__ = ("_callbacks", "_has_turn", "_in_requests", "_left", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left: Final[Sized | None] = getattr(loop, "_ready", None)
        """The callbacks that asyncio has still to make, in this turn or the next; None in a loop that does not tell."""
        self._callbacks: list[Callable[[], object]] = []
        self._in_requests = False
        """Whether requests are handled now, so that `end` will be called."""
        self._has_turn = False
        """Whether the loop will call back in a turn of its own."""

    def add(self, callback: Callable[[], object]) -> None:
        """Calls back once, after the requests."""
        self._callbacks.append(callback)
        if not self._in_requests:
            self._call_in_turn()

    def begin(self) -> None:
        """Notes that the requests of a connection are handled from now on."""
        self._in_requests = True

    def end(self) -> None:
        """Notes that they are handled."""
        self._in_requests = False
        if self._callbacks:
            if self._left is None or len(self._left) > 0:
                self._call_in_turn()
            else:
                self._run()

    def _call_in_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        self._run()

    def _run(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                self._loop.call_exception_handler({"message": f"{callback} failed", "exception": error})
