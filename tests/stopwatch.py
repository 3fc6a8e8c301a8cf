"""A clock for what has to happen at once.

A machine that builds software is shared, and stands still for seconds: its host has taken the processors away. Seconds
of the wall say nothing then about the program that the test looks at, and a limit that is generous enough for them
would let any wait of the program through.
"""

import threading
import time
from types import TracebackType
from typing import Final

TICK_S: Final = 0.005


class Stopwatch:
    """Seconds in which this process could have gone on: those of the wall, less the ones in which a thread that only
    wanted to look at the time did not come to it either. `with Stopwatch() as now: began = now()`."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._last = time.monotonic()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="stopwatch", daemon=True)

    def __enter__(self) -> "Stopwatch":
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self) -> float:
        with self._lock:
            now = time.monotonic()
            self._passed += min(now - self._last, 2 * TICK_S)
            self._last = now
            return self._passed

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            self()
