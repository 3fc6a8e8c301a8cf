"""The settings of one topic's logs, typed and with Python's names, for the code that runs on every append and read.

Built by `barnabas.config.topic` from a topic's overrides and the broker's settings; defaults here are Kafka 4.x's.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_LOG_CONFIG", "LONG_MAX", "RECORD_BYTES_MAX", "LogConfig"]

LONG_MAX: Final = 2**63 - 1
"""Kafka's value for "never" or "no limit"."""
RECORD_BYTES_MAX: Final = 2**31 - 9
"""Kafka's bound of a record, the largest array of Java."""

_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's settings. Each field is the topic setting of the same name with dots for underscores.

    `retention_ms` and `retention_bytes`: -1 means no limit.
    """

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset(("delete",))
    max_message_bytes: int = 1024**2 + 12
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    unclean_leader_election_enable: bool = False
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5

    @property
    def compacted(self) -> bool:
        """Whether every record needs a key: cleanup.policy contains `compact`."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is full: a compacted log must not keep its records from the cleaner for longer than
        max.compaction.lag.ms, and the active segment is never cleaned."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """Whether the broker, not the producer, sets the records' timestamps."""
        return self.message_timestamp_type == "LogAppendTime"


DEFAULT_LOG_CONFIG: Final = LogConfig()
