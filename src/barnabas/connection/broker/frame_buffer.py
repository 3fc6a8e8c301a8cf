"""The buffer of a frame that comes in several pieces: the frame is what was received into it, not copied again."""

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Final

__all__ = ["FrameBuffer"]


_LARGE: Final = 1024 * 1024


@cache
def _unwritten() -> Callable[[int], bytes]:
    """Returns a function that makes bytes without clearing their memory: clearing takes a tenth of the time that it
    takes to receive them. Only Python's C interface has it; importing ctypes pays for large frames only."""
    try:
        import ctypes

        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
        make = prototype(("PyBytes_FromStringAndSize", ctypes.pythonapi))
    except (ImportError, AttributeError):  # another Python than CPython, or one without ctypes
        return bytes
    return lambda size: make(None, size)


class FrameBuffer:
    """`size` bytes, filled from the front. Memory is touched as they come, so a false size costs none."""

    __slots__ = ("_bytes", "left")

    def __init__(self, size: int) -> None:
        # BytesIO lends out the bytes that it was made with as long as nobody else has them
        self._bytes = BytesIO(_unwritten()(size) if size >= _LARGE else bytes(size))
        self.left: memoryview = self._bytes.getbuffer()
        """Where the next bytes belong."""

    def put(self, data: bytes) -> int:
        """Takes from the front of `data` what belongs to the frame, and returns how much that was."""
        count = min(len(data), len(self.left))
        self.left[:count] = data[:count] if count < len(data) else data
        self.filled(count)
        return count

    def filled(self, count: int) -> None:
        """So many bytes were written to `left`, which another buffer replaces."""
        before = self.left
        self.left = before[count:]
        before.release()  # while a caller held it, `take` would copy the bytes

    def take(self) -> bytes:
        """Returns the frame, once nothing of it is left to come."""
        self.left.release()
        return self._bytes.getvalue()
