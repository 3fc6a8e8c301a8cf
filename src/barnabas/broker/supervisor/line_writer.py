"""Writes the lines of several processes to one descriptor, each line with the name of its process before it.

The supervisor must never wait for a reader of its output, because it would restart nothing meanwhile. So lines are kept
until the descriptor takes them. What is kept is bounded: a process whose lines nobody takes waits with its next ones,
as it would without a supervisor, and the other processes do not.
"""

import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["LineWriter", "Lines"]

_KEPT_BYTES_MAX: Final = 64 * 1024
_LINE_BYTES_MAX: Final = 16 * 1024
"""A longer line is cut into several."""


class Lines:
    """The lines of one process that are not written yet."""

    def __init__(self, prefix: str, take: Callable[[bytes], bool] = lambda _line: False) -> None:
        """`take` is called with each line, and returns whether the line is not for people."""
        self._prefix = prefix.encode()
        self._is_taken = take
        self._partial = b""
        self._complete: deque[bytes] = deque()
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be read from the process."""
        return self._size < _KEPT_BYTES_MAX

    def feed(self, data: bytes) -> None:
        """Takes output of the process as it was read, which may end within a line."""
        *complete, self._partial = (self._partial + data).split(b"\n")
        for line in complete:
            self._add(line)
        while len(self._partial) > _LINE_BYTES_MAX:
            self._add(self._partial[:_LINE_BYTES_MAX])
            self._partial = self._partial[_LINE_BYTES_MAX:]

    def end(self) -> None:
        """Ends the last line, after which the process has written nothing."""
        if self._partial:
            self.feed(b"\n")

    def _add(self, line: bytes) -> None:
        if self._is_taken(line):
            return
        self._complete.append(self._prefix + line + b"\n")
        self._size += len(self._complete[-1])

    def take(self) -> bytes:
        """Removes the oldest lines, as many as one write to a pipe takes at once but at least one, and returns them.
        Returns nothing if there are none."""
        taken: list[bytes] = []
        size = 0
        while self._complete and (not taken or size + len(self._complete[0]) <= select.PIPE_BUF):
            taken.append(self._complete.popleft())
            size += len(taken[-1])
        self._size -= size
        return b"".join(taken)


class LineWriter:
    """Writes lines to a descriptor, those of each process in turn."""

    def __init__(self, descriptor: int, sources: Sequence[Lines]) -> None:
        self.descriptor = descriptor
        self._sources = deque(sources)
        self._unwritten = memoryview(b"")
        self._is_broken = False

    def has_lines(self) -> bool:
        """Returns whether something is left to write."""
        if not self._unwritten:
            self._take()
        return bool(self._unwritten)

    def _take(self) -> None:
        for _ in range(len(self._sources)):
            self._sources.rotate(-1)
            self._unwritten = memoryview(self._sources[-1].take())
            if self._unwritten:
                return

    def write(self) -> None:
        """Writes some lines. Does not wait if the descriptor is writable. Drops them if nobody can read them any more:
        brokers serve without their output, too."""
        if not self.has_lines():
            return
        piece = self._unwritten[: select.PIPE_BUF]
        if not self._is_broken:
            try:
                piece = piece[: os.write(self.descriptor, piece)]
            except BlockingIOError:
                return
            except OSError:
                self._is_broken = True
        self._unwritten = self._unwritten[len(piece) :]

    def write_all(self, timeout_s: float) -> None:
        """Writes what is left, unless the descriptor takes nothing for as long as the timeout."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        while self.has_lines() and poll.poll(timeout_s * 1000):
            self.write()
