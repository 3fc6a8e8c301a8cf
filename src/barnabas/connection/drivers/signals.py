"""Signals that wait until the network client is at rest.

Python calls the handler of a signal between two steps of the main thread, whatever that is doing, and a handler that
raises (Ctrl-C does) leaves it half done. So whoever turns a client does it `with HELD`: what comes meanwhile is noted,
and its handler called at the end. The second one of a kind does not wait: whatever keeps the client so long, a plugin
perhaps, the user wants to get out of it. Where a thread waits, or runs the application's code, it does so
`with HELD.through`, and signals are as prompt there as anywhere.
"""

import os
import threading
from _signal import getsignal, signal  # type: ignore[import-not-found]  # no enums around: this is done for each request
from collections.abc import Callable
from signal import SIGALRM, SIGINT, SIGTERM
from types import FrameType
from typing import Any, Final

__all__ = ["HELD", "in_main_thread"]

NUMBERS: Final = (int(SIGINT), int(SIGTERM), int(SIGALRM))
"""Those whose handlers usually raise. Of others the handlers are called where they come."""

_main = threading.main_thread().ident


def in_main_thread() -> bool:
    """Where the handlers of signals are called."""
    return threading.get_ident() == _main


class _Through:
    """Where signals are let through, within `HELD`."""

    def __init__(self, held: "_Held") -> None:
        self._held = held

    def __enter__(self) -> None:
        held = self._held
        if held.holds and threading.get_ident() == _main:
            held.holds = False
            try:
                held.tell()
            except BaseException:
                held.holds = True
                raise

    def __exit__(self, *_: object) -> None:
        """What interrupts this leaves signals let through up to the end of `HELD`: the way out of there is short."""
        held = self._held
        if held.doors and threading.get_ident() == _main:
            held.holds = True


class _Held:
    """See the module. Does nothing in other threads than the main one, where no handler is ever called."""

    def __init__(self) -> None:
        self.holds = False
        self.doors: list[bool] = []
        """Those that are open: whether it held before."""
        self.noted: dict[int, FrameType | None] = {}
        self.through = _Through(self)
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._handler = self._note

    def __enter__(self) -> None:
        if threading.get_ident() != _main:
            return
        held_before, self.holds = self.holds, True
        self.doors += [held_before]  # no call: nothing comes between
        if not held_before:
            try:
                self._take_over()
            except BaseException:
                self._leave()
                raise

    def __exit__(self, *_: object) -> None:
        if self.doors and threading.get_ident() == _main:
            self._leave()
            if self.noted and not self.holds:
                self.tell()

    def _leave(self) -> None:
        try:
            if len(self.doors) == 1:
                self._give_back()
        finally:
            self.holds = self.doors[-1]
            del self.doors[-1]  # as above

    def _take_over(self) -> None:
        for number in NUMBERS:
            handler = getsignal(number)
            if callable(handler) and handler is not self._handler:
                self._before[number] = handler
                signal(number, self._handler)

    def _give_back(self) -> None:
        """What is not given back, because a handler raises in between, stays in our hands until the next time, and is
        handed on."""
        for number in reversed(NUMBERS):
            if getsignal(number) is self._handler:
                signal(number, self._before[number])

    def _note(self, number: int, frame: FrameType | None) -> Any:
        if self.holds and number not in self.noted:
            self.noted[number] = frame
            return None
        self.noted.pop(number, None)
        return self._before[number](number, frame)

    def tell(self) -> None:
        """Call the handlers of what was noted."""
        while self.noted:
            number, frame = self.noted.popitem()
            self._before[number](number, frame)

    def forked(self) -> None:
        """In a child whose main thread is another one: what the parent's was doing does not go on here."""
        self._give_back()
        self.holds = False
        self.doors.clear()
        self.noted.clear()


HELD: Final = _Held()


def _after_fork_in_child() -> None:
    global _main
    if threading.get_ident() != _main:
        _main = threading.get_ident()
        HELD.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
