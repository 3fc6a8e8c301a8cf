"""The progress of a command: one line on a terminal's standard error, which is overwritten, and removed at the end."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, TextIO

from barnabas.cli.framework.output import notice

__all__ = ["Progress", "ProgressLines"]

INTERVAL_S: Final = 0.5
CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    """Shows the number of records, their rate and the text of `detail` every half a second.

    `with Progress(detail) as progress: ... progress.show(count)`. Nothing is shown where standard error is no terminal,
    or `shown` is false.
    """

    def __init__(
        self,
        detail: Callable[[], str],
        *,
        shown: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`detail` is called only when the line is written; an empty text adds nothing."""
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = shown and self._stream.isatty()
        self._detail = detail
        self._clock = clock
        self._at = clock()
        self._count = 0
        self._is_dirty = False

    def show(self, count: int) -> None:
        """Shows that `count` records are done, if it is time."""
        if not self._is_shown:
            return
        now = self._clock()
        passed_s = now - self._at
        if passed_s < INTERVAL_S:
            return
        parts = [f"{count:,} records", f"{(count - self._count) / passed_s:,.0f}/s", self._detail()]
        self._write(", ".join(filter(None, parts)))
        self._is_dirty = True
        self._at, self._count = now, count

    def clear(self) -> None:
        """Removes the line, so that other lines can be written."""
        if self._is_dirty:
            self._write("")
            self._is_dirty = False

    def _write(self, text: str) -> None:
        self._stream.write(CLEAR_LINE + text)
        self._stream.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.clear()


class ProgressLines:
    """Tells on a terminal's standard error how far something is, by a line whenever the text is another."""

    def __init__(self) -> None:
        self._before = ""

    def tell(self, text: str) -> None:
        if text != self._before and sys.stderr.isatty():
            notice(text)
        self._before = text
