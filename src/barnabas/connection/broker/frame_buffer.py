"""The buffer of a frame that comes in several pieces. The pieces are received into the frame, not copied into it."""

from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Final

__all__ = ["FrameBuffer"]


_LARGE: Final = 1024 * 1024


@cache
def _unwritten() -> Callable[[int], bytes]:
    """Returns a function that makes bytes without clearing their memory: clearing takes a tenth of the time that
    receiving takes. Only Python's C interface has that function; the import of ctypes pays for large frames only."""
    try:
        import ctypes

        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
        make = prototype(("PyBytes_FromStringAndSize", ctypes.pythonapi))
    except (ImportError, OSError, AttributeError):  # not CPython, without ctypes, or no room for it
        return bytes
    return lambda size: make(None, size)


class FrameBuffer:
    """Collects `size` bytes. Memory is used only as they come, so a false size costs none."""

    __slots__ = ("_bytes", "left")

    def __init__(self, size: int) -> None:
        # BytesIO gives a writable view of the bytes that it was made with, as long as nothing else refers to them
        self._bytes = BytesIO(_unwritten()(size) if size >= _LARGE else bytes(size))
        self.left: memoryview = self._bytes.getbuffer()
        """The part of the frame that is not received yet."""

    def put(self, data: bytes) -> int:
        """Copies the frame's next bytes from the front of `data`. Returns their number."""
        count = min(len(data), len(self.left))
        self.left[:count] = data[:count] if count < len(data) else data
        self.filled(count)
        return count

    def filled(self, count: int) -> None:
        """Takes over `count` bytes that were written to the front of `left`, and replaces `left` by its rest."""
        before = self.left
        self.left = before[count:]
        before.release()  # `take` copies the bytes if a view of them is left

    def take(self) -> bytes:
        """Returns the frame when it is complete."""
        self.left.release()
        return self._bytes.getvalue()
