"""A range of a file that the log names and the network sends, without reading it into memory."""

import os

__all__ = ["FileSlice"]


class FileSlice:
    """Names `size` bytes of the open file `fd` from `position` on. Nobody changes these bytes any more."""

    __slots__ = ("fd", "position", "size")

    def __init__(self, fd: int, position: int, size: int) -> None:
        self.fd = fd
        self.position = position
        self.size = size

    def __repr__(self) -> str:
        return f"FileSlice(fd={self.fd}, position={self.position}, size={self.size})"

    def __len__(self) -> int:
        return self.size

    def failed(self, error: Exception) -> None:
        """Called by whoever cannot read the slice, with the OSError or the EOFError."""

    def read(self) -> bytes:
        """Reads the bytes, for small slices and for TLS. Raises EOFError if the file ends early."""
        data = os.pread(self.fd, self.size, self.position)
        while len(data) < self.size:
            more = os.pread(self.fd, self.size - len(data), self.position + len(data))
            if not more:
                raise EOFError(f"{self} ends early: the segment was truncated under a reader")
            data += more
        return data
