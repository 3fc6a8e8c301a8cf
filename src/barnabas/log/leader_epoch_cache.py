"""The start offset of each leader epoch of a log, in memory and in `leader-epoch-checkpoint`.

Followers cut their logs by it: with the entries (0, 0), (3, 100), epoch 0 ended at 100, and so did 1 and 2.
"""

import contextlib
import logging
from bisect import bisect_right

from barnabas.log.directories.checkpoints import CorruptCheckpoint, read_epoch_checkpoint, write_epoch_checkpoint
from barnabas.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

__all__ = ["LeaderEpochFileCache"]

_log = logging.getLogger(__name__)


class LeaderEpochFileCache:
    """The leader epochs and their start offsets, both increasing.

    `writes` counts the writes of the file, `writes_synced` those of them that are on the device. `is_dirty` says that
    the disk has refused the last one: it is tried again from time to time, by a flush, and when the log is closed.
    """

    __slots__ = ("_epochs", "_offsets", "is_dirty", "latest", "path", "writes", "writes_synced")

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_dirty = False
        self.writes = self.writes_synced = 0
        self._epochs: list[LeaderEpoch] = []
        self._offsets: list[Offset] = []
        self.latest: LeaderEpoch = NO_LEADER_EPOCH
        """The epoch of the last batch, -1 for a log without batches."""

    def load(self) -> bool:
        """Reads the file. Returns False for a damaged one, which counts as empty: recovery adds the epochs of the
        batches."""
        try:
            entries = read_epoch_checkpoint(self.path)
        except CorruptCheckpoint:
            self._set([])
            return False
        self._set(entries)
        return True

    def _set(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        self._epochs = [epoch for epoch, _ in entries]
        self._offsets = [offset for _, offset in entries]
        self.latest = self._epochs[-1] if entries else NO_LEADER_EPOCH

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        return list(zip(self._epochs, self._offsets, strict=True))

    @property
    def first_offset(self) -> Offset | None:
        """The offset from which on the epochs are known; None if none is."""
        return self._offsets[0] if self._offsets else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset, *, write: bool = True) -> None:
        """Adds an epoch that begins at `start_offset`. Removes entries that contradict it, as in Kafka.

        Raises OSError, and has then changed nothing.
        """
        if epoch == self.latest or epoch < 0:
            return
        kept = [(e, o) for e, o in self.entries if e < epoch and o < start_offset]
        if any(o < start_offset for e, o in self.entries[len(kept) :]):
            # a log of another cluster, or of one whose registry was lost
            _log.warning("%s: epoch %d begins at %d after epoch %d", self.path, epoch, start_offset, self.latest)
        before = self.entries
        self._set([*kept, (epoch, start_offset)])
        if write:
            try:
                self.write()
            except OSError:
                self._set(before)
                raise

    def replace_all(self, entries: list[tuple[LeaderEpoch, Offset]]) -> None:
        """Takes over the entries of a log with the same records. Raises OSError."""
        self._set(entries)
        self.write()

    def rebuild(self, starts: list[tuple[LeaderEpoch, Offset]], end_offset: Offset) -> None:
        """Takes the epochs of the batches in place of those of the file, but for one that begins at the log's end.
        Raises OSError."""
        before = self.entries
        self._set([])
        for epoch, offset in starts:
            self.assign(epoch, offset, write=False)
        for epoch, offset in before:
            if offset >= end_offset and epoch > self.latest:
                self.assign(epoch, offset, write=False)
        if self.entries != before:
            if before:
                _log.warning("%s: contradicts the batches; made anew from them", self.path)
            self.write()

    def write(self) -> None:
        """Writes the file. Appends need not wait for a sync: it comes with the flush of the first batches, which have
        the entries until then."""
        write_epoch_checkpoint(self.path, self.entries, sync=False)
        self.writes += 1
        self.is_dirty = False

    def write_if_dirty(self) -> None:
        """Writes the file if it has not all that is in memory. Raises OSError."""
        if self.is_dirty:
            self.write()

    def note_synced(self, writes: int) -> None:
        """Takes note that the file is on the device with so many writes."""
        self.writes_synced = max(self.writes_synced, writes)

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """Returns the largest epoch at or below the requested one and its end offset; (-1, -1) if that is unknown."""
        if epoch < 0 or epoch > self.latest or not self._epochs:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        after = bisect_right(self._epochs, epoch)
        # an epoch before the first known one ends where that one starts: no difference below is known
        found = self._epochs[after - 1] if after else epoch
        return found, self._offsets[after]

    def epoch_for(self, offset: Offset) -> LeaderEpoch:
        """Returns the epoch of the batch at an offset; -1 if it is older than all known ones."""
        slot = bisect_right(self._offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Removes the epochs that begin at `end_offset` or later, because the log was truncated."""
        kept = [(epoch, offset) for epoch, offset in self.entries if offset < end_offset]
        if len(kept) < len(self._epochs):
            self._set(kept)
            self._write_if_possible()

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Removes the epochs before `start_offset`. The epoch in force at `start_offset` now begins there."""
        first = bisect_right(self._offsets, start_offset) - 1
        if first >= 0 and (first or self._offsets[0] < start_offset):
            entries = self.entries[first:]
            entries[0] = (entries[0][0], start_offset)
            self._set(entries)
            self._write_if_possible()

    def clear(self) -> None:
        if self._epochs:
            self._set([])
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        """Writes the file, later if the disk refuses that."""
        self.is_dirty = True
        with contextlib.suppress(OSError):
            self.write()
