"""The disk of a simulated broker. It knows which records have been synced, and loses others with the power."""

import os
import random
from pathlib import Path

from barnabas.log.directories.disk import Disk

__all__ = ["SimulatedDisk"]


class SimulatedDisk(Disk):
    """Syncs cost no time. A power loss cuts each log to what was synced, or to a little more."""

    def __init__(self) -> None:
        self._synced: dict[int, int] = {}
        """The size that a file had at its last sync, by inode."""

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        found = os.fstat(fd)
        self._synced[found.st_ino] = found.st_size

    def ftruncate(self, fd: int, size: int) -> None:  # type: ignore[override]
        os.ftruncate(fd, size)
        inode = os.fstat(fd).st_ino
        self._synced[inode] = min(self._synced.get(inode, 0), size)

    def lose_power(self, directory: Path, rng: random.Random) -> int:
        """Cuts the logs of a broker that is down. Returns how many bytes are lost."""
        lost = 0
        for path in sorted(directory.glob("*/*.log")):
            found = path.stat()
            kept = rng.randint(min(self._synced.get(found.st_ino, 0), found.st_size), found.st_size)
            os.truncate(path, kept)
            lost += found.st_size - kept
        return lost
