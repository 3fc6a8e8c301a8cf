"""Notices readers that come back to the offset that they had read before, as those do that cannot use what they got."""

from typing import Final

from barnabas.types import Offset

__all__ = ["RepeatedReads"]

_OFFSETS_MAX: Final = 64
_AGAIN_S: Final = 1.0
"""Other readers of the same records usually come sooner than that after the first one."""


class RepeatedReads:
    """The offsets that were read last."""

    __slots__ = ("_first_read",)

    def __init__(self) -> None:
        self._first_read: dict[Offset, float] = {}

    def note(self, offset: Offset, now: float) -> bool:
        """Notes a read. Returns whether it is one too many, and begins to count anew then."""
        first_read = self._first_read
        first = first_read.pop(offset, now)
        if now - first >= _AGAIN_S:
            return True
        first_read[offset] = first
        if len(first_read) > _OFFSETS_MAX:
            del first_read[next(iter(first_read))]
        return False
