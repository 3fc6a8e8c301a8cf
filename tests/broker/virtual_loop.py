"""An event loop whose time jumps to the next timer when there is nothing else to do: waiting costs no time."""

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["run"]


class _VirtualLoop(asyncio.SelectorEventLoop):
    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready:  # type: ignore[attr-defined]
            due = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
            self._now = max(self._now, min(due, default=self._now))
        super()._run_once()  # type: ignore[misc]


def run(main: Coroutine[Any, Any, None]) -> None:
    """For code that waits for timers only; sockets and threads are not waited for."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(main)
