"""Cuts a stream of bytes into size-prefixed frames, without a socket: the caller receives into the reader's buffer.

A frame is a 4-byte size and that number of bytes. Small frames are cut directly out of a scratch buffer that all
connections of a loop share. A frame that does not fit, or is only partly there, gets a buffer of its own, which grows
with the bytes that arrive: a size field alone causes no allocation. Source: the protocol guide, "Network".
"""

from typing import Final

from barnabas.errors import BarnabasError

__all__ = ["SCRATCH_SIZE", "BufferPool", "FrameReader", "FrameTooLarge"]

SCRATCH_SIZE: Final = 256 * 1024
_FIRST_CAPACITY: Final = 64 * 1024
_POOLED_CAPACITY_MAX: Final = 4 * 1024 * 1024
_POOLED_MAX: Final = 4


class FrameTooLarge(BarnabasError):
    """A size field is negative or above the limit. The caller closes the stream, whose next bytes have no meaning."""


class BufferPool:
    """The scratch buffer of one event loop, and a few large buffers that are kept for the next large frames. Only one
    thread may use a pool."""

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._free: list[bytearray] = []

    def take(self, capacity: int) -> bytearray:
        """Returns a buffer of at least `capacity` bytes with arbitrary content."""
        for index, buffer in enumerate(self._free):
            if len(buffer) >= capacity:
                return self._free.pop(index)
        rounded = _FIRST_CAPACITY
        while rounded < capacity:
            rounded *= 2
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        """Returns a buffer to the pool, unless it is too large or the pool is full."""
        if len(buffer) <= _POOLED_CAPACITY_MAX and len(self._free) < _POOLED_MAX:
            self._free.append(buffer)


class FrameReader:
    """Cuts one connection's stream into frames.

    Frames are views of buffers that are used again: a frame is valid until the next call of `buffer`.
    """

    __slots__ = ("_filled", "_head", "_need", "_pool", "_storage", "_used", "size_max")

    def __init__(self, pool: BufferPool, size_max: int) -> None:
        self._pool = pool
        self.size_max = size_max
        """The bound on a frame. It may change between two frames."""
        self._head = b""
        """The bytes of a size field that is not complete."""
        self._storage: bytearray | None = None
        """The frame that is partly received, without its size field."""
        self._need = 0
        self._filled = 0
        self._used: bytearray | None = None
        """The storage of the frame that was returned last."""

    def buffer(self) -> memoryview:
        """Returns the buffer for the next bytes of the stream. Frames that were returned before become invalid."""
        if self._used is not None:
            self._pool.give(self._used)
            self._used = None
        if self._storage is not None:
            return memoryview(self._storage)[self._filled : min(self._need, len(self._storage))]
        if self._head:
            return self._pool.scratch[4:]
        return self._pool.scratch

    def received(self, count: int) -> list[memoryview]:
        """Returns the frames that are completed by `count` bytes in the buffer. Raises FrameTooLarge."""
        if self._storage is not None:
            return self._more_of_frame(count)
        scratch = self._pool.scratch
        position, end = 0, count
        if self._head:
            # `buffer` returned the scratch buffer from byte 4 on, to leave room for the begun size field.
            position, end = 4 - len(self._head), 4 + count
            scratch[position:4] = self._head
            self._head = b""
        frames: list[memoryview] = []
        while end - position >= 4:
            size = int.from_bytes(scratch[position : position + 4], "big", signed=True)
            if not 0 <= size <= self.size_max:
                raise FrameTooLarge(
                    f"a frame claims {size} bytes; the limit is {self.size_max} (socket.request.max.bytes)"
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
        """Replaces the storage by one of twice the received bytes, but no larger than the frame."""
        assert self._storage is not None
        larger = self._pool.take(min(self._need, 2 * self._filled))
        larger[: self._filled] = memoryview(self._storage)[: self._filled]
        self._pool.give(self._storage)
        self._storage = larger

    def close(self) -> None:
        """Returns the buffers to the pool."""
        for buffer in (self._used, self._storage):
            if buffer is not None:
                self._pool.give(buffer)
        self._used = self._storage = None
