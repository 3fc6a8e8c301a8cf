"""Notices that the event loop stands still, as in a write to a disk that hangs, while the process goes on.

Nothing of the broker runs on the loop then: no heartbeat is sent or answered, and nobody could tell the others.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["LoopWatchdog"]

_LOOKS: Final = 8
"""So often the loop is looked at within the time that it may stand still."""


class LoopWatchdog:
    """A thread that looks whether the loop turns. Made and closed on the loop's thread, which calls `turned`."""

    def __init__(self, limit_s: float, stands_still: Callable[[Callable[[], bool]], bool], log: logging.Logger) -> None:
        """`stands_still` is called in the thread when the loop has not turned for so long. Returns whether it has done
        what is to be done; otherwise it is called again. It must not wait for the loop, nor for what that may hold. It
        gets a function that says whether the loop still has not turned, for when its own turn has come."""
        self._limit_s = limit_s
        self._stands_still = stands_still
        self._log = log
        self._turns = 0
        self._loop_thread = threading.get_ident()
        self._is_closed = threading.Event()
        threading.Thread(target=self._watch, name="barnabas-watchdog", daemon=True).start()

    def turned(self) -> None:
        """Notes that the loop turns. Called periodically, at least as often as the thread looks."""
        self._turns += 1

    def close(self) -> None:
        self._is_closed.set()

    def _watch(self) -> None:
        interval_s = self._limit_s / _LOOKS
        turns, since, looked = self._turns, time.monotonic(), time.monotonic()
        is_done = False
        while not self._is_closed.wait(interval_s):
            now = time.monotonic()
            # A process that was stopped, or had no processor, has stood still as a whole, and hears of its successors.
            if self._turns != turns or now - looked > 3 * interval_s:
                turns, since, is_done = self._turns, now, False
            elif not is_done and now - since >= self._limit_s:
                is_done = self._stands_still(partial(self._has_stood_since, turns))
                if is_done:
                    self._log.error("the event loop stands still for %.1f s, in %s", now - since, self._place())
            looked = time.monotonic()

    def _has_stood_since(self, turns: int) -> bool:
        return self._turns == turns and not self._is_closed.is_set()

    def _place(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "nothing" if frame is None else f"{frame.f_code.co_qualname} ({frame.f_code.co_filename})"
