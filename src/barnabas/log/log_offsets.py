"""The offsets of a log, and the results of its operations."""

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.records.file_slice import FileSlice
from barnabas.types import FIRST_OFFSET, LeaderEpoch, Offset

__all__ = ["EMPTY_READ", "AppendInfo", "LogOffsets", "LogRead", "TimestampOffset"]


class AppendInfo:
    """The result of an append. `log_append_time` is -1 if records keep their producer's time. For a `duplicate` nothing
    was written, and the offsets are those of the earlier batch."""

    __slots__ = ("duplicate", "first_offset", "last_offset", "log_append_time", "log_start_offset")

    def __init__(
        self, first_offset: Offset, last_offset: Offset, log_append_time: int, log_start_offset: Offset, duplicate: bool
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate


class LogRead:
    """The slice to send, of `size` bytes; None if there are no records below the bound."""

    __slots__ = ("file_slice", "size")

    def __init__(self, file_slice: FileSlice | None, size: int) -> None:
        self.file_slice = file_slice
        self.size = size


EMPTY_READ = LogRead(None, 0)


class TimestampOffset(NamedTuple):
    """A record that was found by its timestamp, with the leader epoch of its batch."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(slots=True)
class LogOffsets:
    """The four offsets of a log. Each is exclusive: the offset of the next record.

    Only the methods change them, and every change asserts
    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset.
    """

    log_start_offset: Offset = FIRST_OFFSET
    last_stable_offset: Offset = FIRST_OFFSET
    high_watermark: Offset = FIRST_OFFSET
    log_end_offset: Offset = FIRST_OFFSET

    def check(self) -> None:
        """Asserts the order of the offsets."""
        assert 0 <= self.log_start_offset <= self.last_stable_offset, self
        assert self.last_stable_offset <= self.high_watermark <= self.log_end_offset, self

    def advance_log_end(self, offset: Offset) -> None:
        """Moves the log end offset after an append."""
        assert offset >= self.log_end_offset, f"log_end_offset moves back to {offset}: {self}"
        self.log_end_offset = offset

    def advance_high_watermark(self, offset: Offset, last_stable_offset: Offset) -> None:
        """Moves the high watermark, and the last stable offset below it."""
        assert self.high_watermark <= offset <= self.log_end_offset, f"high_watermark to {offset}: {self}"
        assert self.last_stable_offset <= last_stable_offset <= offset, (
            f"last_stable_offset to {last_stable_offset}: {self}"
        )
        self.high_watermark = offset
        self.last_stable_offset = last_stable_offset

    def advance_log_start(self, offset: Offset) -> None:
        """Moves the log start offset. Offsets that lie below it move along."""
        assert self.log_start_offset <= offset <= self.log_end_offset, f"log_start_offset to {offset}: {self}"
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.last_stable_offset = max(self.last_stable_offset, offset)

    def truncate(self, log_end_offset: Offset) -> None:
        """Moves the log end offset back: the only operation that moves the other offsets back."""
        assert self.log_start_offset <= log_end_offset <= self.log_end_offset, f"truncate to {log_end_offset}: {self}"
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
        self.last_stable_offset = min(self.last_stable_offset, log_end_offset)

    def restore_last_stable(self, first_unstable_offset: Offset | None) -> None:
        """Sets the last stable offset to the first open transaction, after the producers were rebuilt."""
        stable = self.high_watermark if first_unstable_offset is None else first_unstable_offset
        self.last_stable_offset = max(self.log_start_offset, min(stable, self.high_watermark))

    def restart(self, offset: Offset) -> None:
        """Sets all offsets of an emptied log."""
        assert offset >= 0, offset
        self.log_start_offset = self.last_stable_offset = self.high_watermark = self.log_end_offset = offset
