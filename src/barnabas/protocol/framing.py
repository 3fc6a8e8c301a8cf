"""Size-prefixed frames, without a socket: say where the next bytes go, hear how many came, get the frames.

A frame is a 4-byte size and that many bytes. Small frames are cut straight out of a scratch buffer that all connections
of a loop share; a frame that does not fit, or has not all come, continues in a buffer of its own that grows with what
really arrives, so that a size field alone makes nobody allocate. Source: the protocol guide, "Network".
"""

from typing import Final

from barnabas.errors import BarnabasError

__all__ = ["SCRATCH_SIZE", "BufferPool", "FrameReader", "FrameTooLarge"]

SCRATCH_SIZE: Final = 256 * 1024
_FIRST_CAPACITY: Final = 64 * 1024
_POOLED_CAPACITY_MAX: Final = 4 * 1024 * 1024
_POOLED_MAX: Final = 4


class FrameTooLarge(BarnabasError):
    """A size field is negative or above the limit. What follows in the stream has no meaning: close it."""


class BufferPool:
    """The scratch buffer of one event loop, and a few large buffers kept for the next large frames.

    Not for use by several threads.
    """

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._free: list[bytearray] = []

    def take(self, capacity: int) -> bytearray:
        """A buffer of at least `capacity` bytes, holding rubbish."""
        for index, buffer in enumerate(self._free):
            if len(buffer) >= capacity:
                return self._free.pop(index)
        rounded = _FIRST_CAPACITY
        while rounded < capacity:
            rounded *= 2
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        """Back into the pool, unless it is large or the pool is full."""
        if len(buffer) <= _POOLED_CAPACITY_MAX and len(self._free) < _POOLED_MAX:
            self._free.append(buffer)


class FrameReader:
    """Cuts one connection's stream into frames.

    Frames are views into buffers that are used again: each is valid until the next call of `buffer`.
    """

    __slots__ = ("_filled", "_head", "_need", "_pool", "_size_max", "_storage", "_used")

    def __init__(self, pool: BufferPool, size_max: int) -> None:
        self._pool = pool
        self._size_max = size_max
        self._head = b""
        """Bytes of a size field that is not complete."""
        self._storage: bytearray | None = None
        """The frame that is under way, without its size field, and how much of it has come."""
        self._need = 0
        self._filled = 0
        self._used: bytearray | None = None
        """A storage whose frame was handed out."""

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream go. Frames handed out before are void."""
        if self._used is not None:
            self._pool.give(self._used)
            self._used = None
        if self._storage is not None:
            return memoryview(self._storage)[self._filled : min(self._need, len(self._storage))]
        if self._head:
            return self._pool.scratch[4:]
        return self._pool.scratch

    def received(self, count: int) -> list[memoryview]:
        """The frames that `count` more bytes in the buffer complete. Raises FrameTooLarge."""
        if self._storage is not None:
            return self._more_of_frame(count)
        scratch = self._pool.scratch
        position, end = 0, count
        if self._head:
            # The scratch buffer was offered from byte 4 on, so that the begun size field fits before it.
            position, end = 4 - len(self._head), 4 + count
            scratch[position:4] = self._head
            self._head = b""
        frames: list[memoryview] = []
        while end - position >= 4:
            size = int.from_bytes(scratch[position : position + 4], "big", signed=True)
            if not 0 <= size <= self._size_max:
                raise FrameTooLarge(
                    f"a frame claims {size} bytes; the limit is {self._size_max} (socket.request.max.bytes)"
                )
            position += 4
            if end - position < size:
                self._begin_frame(size, scratch[position:end])
                return frames
            frames.append(scratch[position : position + size])
            position += size
        if position < end:
            self._head = bytes(scratch[position:end])
        return frames

    def _begin_frame(self, size: int, first: memoryview) -> None:
        self._storage = self._pool.take(min(size, max(_FIRST_CAPACITY, len(first))))
        self._storage[: len(first)] = first
        self._need = size
        self._filled = len(first)

    def _more_of_frame(self, count: int) -> list[memoryview]:
        assert self._storage is not None
        self._filled += count
        if self._filled < self._need:
            if self._filled == len(self._storage):
                self._grow()
            return []
        frame = memoryview(self._storage)[: self._need]
        self._used, self._storage = self._storage, None
        return [frame]

    def _grow(self) -> None:
        """Twice as large as what has come, and no larger than the frame."""
        assert self._storage is not None
        larger = self._pool.take(min(self._need, 2 * self._filled))
        larger[: self._filled] = memoryview(self._storage)[: self._filled]
        self._pool.give(self._storage)
        self._storage = larger

    def close(self) -> None:
        """Give the buffers back."""
        for buffer in (self._used, self._storage):
            if buffer is not None:
                self._pool.give(buffer)
        self._used = self._storage = None
