"""Room for a frame that comes in several pieces: what is received into it is the frame in the end, not copied again."""

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Final

__all__ = ["FrameBuffer"]


_LARGE: Final = 1024 * 1024


@cache
def _unwritten() -> Callable[[int], bytes]:
    """Makes bytes that hold whatever their memory held: to write zeros takes a tenth of the time that it takes to
    receive them. Python has no such function, but its C interface; importing ctypes pays for large frames only."""
    try:
        import ctypes

        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
        make = prototype(("PyBytes_FromStringAndSize", ctypes.pythonapi))
    except (ImportError, AttributeError):  # another Python than CPython, or one without ctypes
        return bytes
    return lambda size: make(None, size)


class FrameBuffer:
    """`size` bytes, filled from the front. Memory is touched as they come, so a size that is a lie costs none."""

    __slots__ = ("_bytes", "left")

    def __init__(self, size: int) -> None:
        # BytesIO lends out the bytes that it was made with as long as nobody else has them
        self._bytes = BytesIO(_unwritten()(size) if size >= _LARGE else bytes(size))
        self.left: memoryview = self._bytes.getbuffer()
        """Where the next bytes belong."""

    def put(self, data: bytes) -> int:
        """Take from the front of `data` what belongs in here; how much that was."""
        count = min(len(data), len(self.left))
        self.left[:count] = data[:count] if count < len(data) else data
        self.filled(count)
        return count

    def filled(self, count: int) -> None:
        """So many bytes were written to `left`, which is void from now on."""
        before = self.left
        self.left = before[count:]
        before.release()  # whoever lent it may still hold it, and the bytes would be copied for him

    def take(self) -> bytes:
        """The frame, once nothing is left to come; the room is of no use any more."""
        self.left.release()
        return self._bytes.getvalue()
