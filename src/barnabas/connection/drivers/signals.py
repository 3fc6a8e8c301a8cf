"""Holds signals back until the network client is at rest.

Python calls the handler of a signal between two steps of the main thread, whatever that is doing, and a handler that
raises (Ctrl-C does) leaves its work half done. So a thread works with a client only `with HELD`: a signal that comes
meanwhile is noted, and its handler called at the end. A second signal of the same number is not held back: the user
must be able to interrupt a client that a plugin keeps busy for long. A thread that waits, or runs the application's
code, does so `with HELD.through`, where signals are handled at once.
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
"""The signals whose handlers usually raise. Other signals are not held back."""

_main = threading.main_thread().ident


def in_main_thread() -> bool:
    """Whether this is the thread in which the handlers of signals are called."""
    return threading.get_ident() == _main


class _Through:
    """Lets signals through within `HELD`."""

    def __init__(self, held: "_Held") -> None:
        self._held = held

    def __enter__(self) -> None:
        held = self._held
        if held.holds and threading.get_ident() == _main:
            held.holds = False
            try:
                held.handle_noted()
            except BaseException:
                held.holds = True
                raise

    def __exit__(self, *_: object) -> None:
        """Holds signals back again. If a signal interrupts this method, signals pass until `HELD` ends, which is
        soon."""
        held = self._held
        if held.entries and threading.get_ident() == _main:
            held.holds = True


class _Held:
    """Holds signals back in the main thread; does nothing in others, in which no handler is ever called."""

    def __init__(self) -> None:
        self.holds = False
        self.entries: list[bool] = []
        """An entry for each open `with HELD`: whether signals were held back before it."""
        self.noted: dict[int, FrameType | None] = {}
        self.through = _Through(self)
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._handler = self._note

    def __enter__(self) -> None:
        if threading.get_ident() != _main:
            return
        held_before, self.holds = self.holds, True
        self.entries += [held_before]  # without a call, so that no signal is handled in between
        if not held_before:
            try:
                self._take_over()
            except BaseException:
                self._leave()
                raise

    def __exit__(self, *_: object) -> None:
        if self.entries and threading.get_ident() == _main:
            self._leave()
            if self.noted and not self.holds:
                self.handle_noted()

    def _leave(self) -> None:
        try:
            if len(self.entries) == 1:
                self._give_back()
        finally:
            self.holds = self.entries[-1]
            del self.entries[-1]  # as above

    def _take_over(self) -> None:
        for number in NUMBERS:
            handler = getsignal(number)
            if callable(handler) and handler is not self._handler:
                self._before[number] = handler
                signal(number, self._handler)

    def _give_back(self) -> None:
        """Restores the handlers. If a handler raises in between, `_note` calls those that are not restored until the
        next time."""
        for number in reversed(NUMBERS):
            if getsignal(number) is self._handler:
                signal(number, self._before[number])

    def _note(self, number: int, frame: FrameType | None) -> Any:
        if self.holds and number not in self.noted:
            self.noted[number] = frame
            return None
        self.noted.pop(number, None)
        return self._before[number](number, frame)

    def handle_noted(self) -> None:
        """Calls the handlers of the noted signals."""
        while self.noted:
            number, frame = self.noted.popitem()
            self._before[number](number, frame)

    def forked(self) -> None:
        """Drops the entries of the main thread in a child that another thread forked: that thread's work ends there."""
        self._give_back()
        self.holds = False
        self.entries.clear()
        self.noted.clear()


HELD: Final = _Held()


def _after_fork_in_child() -> None:
    global _main
    if threading.get_ident() != _main:
        _main = threading.get_ident()
        HELD.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
