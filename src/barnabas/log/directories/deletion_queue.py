"""Holds deleted files and directories for file.delete.delay.ms before they are removed.

Removing a large file can take tens of milliseconds: `remove_due` may run in any thread.
"""

import contextlib
import heapq
import os
import shutil
import threading
from collections import Counter

__all__ = ["DeletionQueue"]


class DeletionQueue:
    """The paths with the times at which they are due."""

    __slots__ = ("_heap", "_lock", "_parents")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._parents: Counter[str] = Counter()
        """The number of waiting paths in each directory: most directories have none."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, path: str, due_ms: int) -> None:
        """Removes the file or directory at `due_ms` (wall clock) or later."""
        with self._lock:
            heapq.heappush(self._heap, (due_ms, path))
            self._parents[os.path.dirname(path)] += 1

    def rename_below(self, old_directory: str, new_directory: str) -> None:
        """Uses the new name of a directory with waiting files."""
        prefix = old_directory + "/"
        with self._lock:
            if not (count := self._parents.pop(old_directory, 0)):
                return
            self._parents[new_directory] += count
            self._heap = [
                (due, new_directory + path[len(old_directory) :] if path.startswith(prefix) else path)
                for due, path in self._heap
            ]

    def remove_due(self, now_ms: int) -> int:
        """Removes the paths that are due and returns their number. One that cannot be removed is left for the next
        start."""
        count = 0
        while True:
            with self._lock:
                if not self._heap or self._heap[0][0] > now_ms:
                    return count
                _, path = heapq.heappop(self._heap)
                parent = os.path.dirname(path)
                self._parents[parent] -= 1
                if not self._parents[parent]:
                    del self._parents[parent]
            remove(path)
            count += 1


def remove(path: str) -> None:
    """Removes a file, or a directory with its content, if it exists."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        os.unlink(path)
