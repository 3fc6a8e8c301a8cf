"""The batches of a replica as they are in its files, also while its broker is stopped."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import CorruptMessage
from barnabas.records.batch import iter_batches

__all__ = ["LoggedBatch", "read_log", "read_replica"]


class LoggedBatch(NamedTuple):
    """A batch in the log of a replica."""

    leader_epoch: int
    base_offset: int
    last_offset: int
    """Inclusive."""
    data: bytes
    """All bytes of the batch."""

    def __repr__(self) -> str:
        offsets = f"{self.base_offset}..{self.last_offset}"
        return f"<{offsets} in epoch {self.leader_epoch}, {len(self.data)} bytes>"


def read_log(directory: Path) -> list[LoggedBatch]:
    """Returns the batches in the segments of a log's directory, up to the first that is not whole; none if there is no
    such directory."""
    found: list[LoggedBatch] = []
    for segment in sorted(directory.glob("*.log")):
        try:
            for header, batch in iter_batches(segment.read_bytes()):
                found.append(
                    LoggedBatch(header.partition_leader_epoch, header.base_offset, header.last_offset, bytes(batch))
                )
        except (CorruptMessage, FileNotFoundError):  # space that was allocated ahead; a segment that was just deleted
            continue
    return found


def read_replica(log_dirs: Sequence[Path], name: str) -> list[LoggedBatch] | None:
    """Returns the batches of a broker's log, wherever in its log directories that is; None if it has no such log."""

    def find() -> Path | None:
        return next((log for log_dir in log_dirs if (log := log_dir / name).is_dir()), None)

    # A log that moves has its name in the new directory before it loses it in the old one: a second look finds it.
    while log := find() or find():
        batches = read_log(log)
        if log.is_dir():
            return batches
    return None
