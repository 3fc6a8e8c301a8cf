"""Writes the files of a cleaned segment: `.cleaned` until they are complete and on the device."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.log.cleaner.file_names import cleaned_path
from barnabas.log.indexes.transaction_index import AbortedTransaction, pack_entries
from barnabas.records.compiled.batch_filter import BatchFilter
from barnabas.types import Offset

__all__ = ["CleanedSegment"]

_PARTS_MAX: Final = 1024
"""The number of buffers that one writev takes."""
_COPY_BYTES: Final = 1024 * 1024


class CleanedSegment:
    """A cleaned segment, made empty; `finish` makes it durable."""

    def __init__(self, directory: str, base_offset: Offset, token: str, wrote: Callable[[int], None]) -> None:
        """`wrote` is called with the number of written bytes."""
        self._directory = directory
        self._base_offset = base_offset
        self._token = token
        self._wrote = wrote
        self.size = 0
        self._fd = self._create(".log")

    def _create(self, suffix: str) -> int:
        path = cleaned_path(self._directory, self._base_offset, suffix, self._token)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, parts: Sequence[bytes]) -> None:
        """Appends all parts. Raises OSError."""
        size = sum(map(len, parts))
        written = os.writev(self._fd, parts) if 0 < len(parts) <= _PARTS_MAX else 0
        if written < size:
            rest = memoryview(b"".join(parts))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self.size += size
        self._wrote(size)

    def copy_from(self, path: str, size: int) -> None:
        """Appends the first `size` bytes of a file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            position = 0
            while position < size:
                data = os.pread(fd, min(_COPY_BYTES, size - position), position)
                if not data:
                    raise OSError(f"{path} ends at byte {position}, {size} were there")
                self.write([data])
                position += len(data)
        finally:
            os.close(fd)

    def finish(self, batches: BatchFilter, aborted: Sequence[AbortedTransaction], newest_source: str) -> None:
        """Writes the indexes and syncs all files. The time of change is that of the newest source, because retention
        uses it."""
        changed_ns = os.stat(newest_source).st_mtime_ns
        os.utime(self._fd, ns=(changed_ns, changed_ns))
        os.fsync(self._fd)
        contents = {".index": batches.offset_entries.getvalue(), ".timeindex": batches.time_entries.getvalue()}
        if aborted:
            contents[".txnindex"] = pack_entries(aborted)
        for suffix, content in contents.items():
            fd = self._create(suffix)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.fsync(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
