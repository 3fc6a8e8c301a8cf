"""Holds deleted files and directories for file.delete.delay.ms before they are removed.

What the disk does not remove is tried again: it takes room that others need.

Removing a large file can take tens of milliseconds: `remove_due` may run in any thread.
"""

import heapq
import logging
import os
import shutil
import threading
from collections import Counter
from typing import Final

__all__ = ["DeletionQueue"]

AGAIN_MS: Final = 60_000
"""After this time a removal that failed is tried again."""

_log = logging.getLogger(__name__)


class DeletionQueue:
    """The paths with the times at which they are due."""

    __slots__ = ("_failed", "_heap", "_lock", "_parents")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._parents: Counter[str] = Counter()
        """The number of waiting paths in each directory: most directories have none."""
        self._failed: set[str] = set()
        """The paths that could not be removed so far."""
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
        """Removes the paths that are due and returns their number. One that cannot be removed is told once and tried
        again, at the latest by the next start."""
        count = 0
        failed: list[str] = []
        while True:
            with self._lock:
                if not self._heap or self._heap[0][0] > now_ms:
                    break
                _, path = heapq.heappop(self._heap)
                parent = os.path.dirname(path)
                self._parents[parent] -= 1
                if not self._parents[parent]:
                    del self._parents[parent]
            error = remove(path)
            if error is None:
                count += 1
                self._failed.discard(path)
                continue
            failed.append(path)
            if path not in self._failed:
                self._failed.add(path)
                _log.warning("%s cannot be removed: %s; tried again", error.filename or path, error.strerror)
        for path in failed:
            self.add(path, now_ms + AGAIN_MS)
        return count


def remove(path: str) -> OSError | None:
    """Removes a file, or a directory with its content, if it exists. Returns the first error, after it has removed all
    that can be removed."""
    try:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
            shutil.rmtree(path)  # says what is left, if anything is
        else:
            os.unlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None
