"""The messages between the broker and its cleaner process, as frames of JSON: jobs to the process, events from it.

A frame is its length, 32 bits big-endian, and that many bytes. Both ends are ours and of one version; a frame that
claims too much ends the process all the same.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from barnabas.config.log_config import RECORD_BYTES_MAX
from barnabas.types import Offset, ProducerId

__all__ = ["EVENT_MAX_BYTES", "JOB_MAX_BYTES", "BrokenFrame", "CleanerConfig", "CleaningJob", "Frames", "frame"]

JOB_MAX_BYTES: Final = 64 * 1024**2
EVENT_MAX_BYTES: Final = 1024**2
_LENGTH: Final = 4


class BrokenFrame(Exception):
    """The other process does not follow the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The limits of a cleaning: the broker's settings `log.cleaner.*`."""

    dedupe_buffer_size: int = 128 * 1024**2
    io_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 * 1024
    io_max_bytes_per_second: float = 1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """The cleaning of one log, described by offsets and names only, because the process has none of the broker's
    memory."""

    directory: str
    token: str
    """A part of the names of all files of the cleaning, so that a process whose broker has died cannot damage
    others."""
    segments: tuple[tuple[Offset, int], ...]
    """Base offset and size of the segments to be cleaned, oldest first."""
    first_dirty_offset: Offset
    end_offset: Offset
    """The base offset of the first segment that is not cleaned."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    kept_offsets: tuple[Offset, ...] = ()
    """The last offsets of the active producers' last batches."""
    marker_epochs: tuple[tuple[ProducerId, int], ...] = ()
    """Producer id and epoch of the active producers that have only end markers in their epoch."""
    record_max_bytes: int = RECORD_BYTES_MAX
    """The largest record in a compressed batch (max.decompressed.message.bytes)."""
    limits: CleanerConfig = CleanerConfig()

    def pack(self) -> bytes:
        """Encodes the job as a frame."""
        return frame(asdict(self))

    @classmethod
    def parse(cls, message: dict[str, Any]) -> "CleaningJob":
        values = {field.name: message[field.name] for field in fields(cls)}
        values["segments"] = tuple((base, size) for base, size in message["segments"])
        values["kept_offsets"] = tuple(message["kept_offsets"])
        values["marker_epochs"] = tuple((producer, epoch) for producer, epoch in message["marker_epochs"])
        values["limits"] = CleanerConfig(**message["limits"])
        return cls(**values)


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return len(body).to_bytes(_LENGTH, "big") + body


class Frames:
    """Cuts received bytes into messages."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Returns the messages that are complete now. Raises BrokenFrame."""
        self._data += data
        found = []
        while len(self._data) >= _LENGTH:
            size = int.from_bytes(self._data[:_LENGTH], "big")
            if size > self._max_bytes:
                raise BrokenFrame(f"a frame claims {size} bytes, {self._max_bytes} is the most")
            end = _LENGTH + size
            if len(self._data) < end:
                break
            try:
                message = json.loads(self._data[_LENGTH:end])
            except ValueError as error:
                raise BrokenFrame(f"a frame is no JSON: {error}") from None
            del self._data[:end]
            found.append(message)
        return found
