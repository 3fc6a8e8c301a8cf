"""The rules that a topic's configuration sets for its batches, and the errors that name the records at fault."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.errors import InvalidRecord, InvalidTimestamp, KafkaError
from barnabas.records.compression import CODEC_IDS, DECOMPRESSED_MAX_BYTES, NONE

__all__ = ["TARGETS", "AppendPolicy", "RecordError", "RefusedRecords", "RefusedTimestamps", "record_errors_of"]

TARGETS: Final = {**CODEC_IDS, "uncompressed": NONE, "producer": -1}
"""The codec of each compression.type; -1 keeps the producer's choice."""

_DECOMPRESSED_FREE_BYTES: Final = 16 * 1024 * 1024
_DECOMPRESSED_RATIO: Final = 64


class RecordError(NamedTuple):
    """The reason for which one record was refused, and the record's index in the batch."""

    batch_index: int
    message: str


class RefusedRecords(InvalidRecord):
    """Some records of the batch are at fault; `record_errors` names them."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RefusedTimestamps(InvalidTimestamp):
    """Some records have timestamps out of bounds; `record_errors` names them."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


def record_errors_of(error: KafkaError) -> tuple[RecordError, ...]:
    """Returns the reasons for single records that `error` carries, for the Produce response; most errors carry none."""
    if isinstance(error, (RefusedRecords, RefusedTimestamps)):
        return error.record_errors
    return ()


@dataclass(frozen=True, slots=True)
class AppendPolicy:
    """The rules that a topic's configuration sets for the batches it takes. Kafka's names stand in brackets.

    The timestamp bounds apply to CreateTime topics only.
    """

    max_message_bytes: int = 1_048_588
    """The largest size of a stored batch, header included (max.message.bytes)."""
    record_max_bytes: int = 2**31 - 9
    """The largest size of a record in a compressed batch (max.decompressed.message.bytes)."""
    compacted: bool = False
    """Whether records need keys (cleanup.policy contains compact)."""
    log_append_time: bool = False
    """Whether the leader's clock sets the timestamps (message.timestamp.type=LogAppendTime)."""
    timestamp_before_max_ms: int = 2**63 - 1
    """The greatest age of a record's timestamp (message.timestamp.before.max.ms)."""
    timestamp_after_max_ms: int = 3_600_000
    """The greatest distance of a record's timestamp into the future (message.timestamp.after.max.ms)."""
    compression_type: str = "producer"
    """producer (batches are stored as sent), uncompressed, gzip, snappy, lz4 or zstd (compression.type)."""
    compression_level: int | None = None
    """The level of batches that the leader compresses anew (compression.gzip.level etc.); None: the codec's default."""
    decompressed_max_bytes: int = DECOMPRESSED_MAX_BYTES
    """The most that any compressed batch may hold; `decompression_bound` gives the bound of one batch."""

    def decompression_bound(self, size: int) -> int:
        """Returns how many bytes a compressed batch of `size` bytes may hold. A batch with more is MESSAGE_TOO_LARGE.

        The bound is 16 MiB, or 64 times the size of a large batch, and at most `decompressed_max_bytes`; but never less
        than twice max.message.bytes. So a small request costs tens of milliseconds at most, not seconds.
        """
        own = 2 * self.max_message_bytes
        wanted = max(_DECOMPRESSED_FREE_BYTES, _DECOMPRESSED_RATIO * size)
        return max(own, min(wanted, self.decompressed_max_bytes))

    def __post_init__(self) -> None:
        assert self.compression_type in TARGETS, self
