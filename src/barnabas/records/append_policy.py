"""What a topic's configuration says about the batches it takes, and how a refusal names the records at fault."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.errors import InvalidRecord, InvalidTimestamp, KafkaError
from barnabas.records.compression import CODEC_IDS, DECOMPRESSED_MAX_BYTES, NONE

__all__ = ["TARGETS", "AppendPolicy", "RecordError", "RefusedRecords", "RefusedTimestamps", "record_errors_of"]

TARGETS: Final = {**CODEC_IDS, "uncompressed": NONE, "producer": -1}
"""The codec that each compression.type asks for; -1 is whatever the producer chose."""

_DECOMPRESSED_FREE_BYTES: Final = 16 * 1024 * 1024
_DECOMPRESSED_RATIO: Final = 64


class RecordError(NamedTuple):
    """Why one record was refused: its index in the batch and the reason."""

    batch_index: int
    message: str


class RefusedRecords(InvalidRecord):
    """Some records of the batch are at fault: `record_errors` says which."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RefusedTimestamps(InvalidTimestamp):
    """Some records' timestamps are not acceptable: `record_errors` says which."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


def record_errors_of(error: KafkaError) -> tuple[RecordError, ...]:
    """The per-record reasons that `error` carries, for the Produce response; most errors carry none."""
    if isinstance(error, (RefusedRecords, RefusedTimestamps)):
        return error.record_errors
    return ()


@dataclass(frozen=True, slots=True)
class AppendPolicy:
    """What a topic's configuration says about the batches it takes. Kafka's config names in brackets.

    The timestamp bounds apply to CreateTime topics only.
    """

    max_message_bytes: int = 1_048_588
    """The largest batch, header included, as it is stored (max.message.bytes)."""
    compacted: bool = False
    """Records need keys (cleanup.policy contains compact)."""
    log_append_time: bool = False
    """The leader's clock sets the timestamps (message.timestamp.type=LogAppendTime)."""
    timestamp_before_max_ms: int = 2**63 - 1
    """How old a record's timestamp may be (message.timestamp.before.max.ms)."""
    timestamp_after_max_ms: int = 3_600_000
    """How far in the future it may be (message.timestamp.after.max.ms)."""
    compression_type: str = "producer"
    """producer (store as sent), uncompressed, gzip, snappy, lz4, zstd (compression.type)."""
    compression_level: int | None = None
    """For recoding (compression.gzip.level and its siblings); None is the codec's default."""
    decompressed_max_bytes: int = DECOMPRESSED_MAX_BYTES
    """What one compressed batch may hold, at any size and ratio; see `decompression_bound`."""

    def decompression_bound(self, size: int) -> int:
        """Bytes that a compressed batch of `size` bytes may hold; MESSAGE_TOO_LARGE beyond, and a producer splits it.

        16 MiB for any batch, more for batches that are large themselves (64 times their size), `decompressed_max_bytes`
        at most; twice max.message.bytes in any case. So a small request can cost tens of milliseconds, not seconds.
        """
        own = 2 * self.max_message_bytes
        wanted = max(_DECOMPRESSED_FREE_BYTES, _DECOMPRESSED_RATIO * size)
        return max(own, min(wanted, self.decompressed_max_bytes))

    def __post_init__(self) -> None:
        assert self.compression_type in TARGETS, self
