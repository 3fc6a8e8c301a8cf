"""Settings of the transaction coordinator, typed; the broker fills them from Kafka's dotted names."""

from dataclasses import dataclass

__all__ = ["TransactionConfig"]

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Each field names Kafka's setting; defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms: a transaction that is over its time is aborted at
    once; this long passes before another try, when the abort could not be written."""
    id_expiration_ms: int = 7 * _DAY_MS
    """transactional.id.expiration.ms"""
    two_phase_commit_enable: bool = False
    """transaction.two.phase.commit.enable"""
    add_wait_max_ms: int = 100
    """add.partitions.to.txn.retry.backoff.max.ms: how long partitions that belong to the next transaction may wait for
    the end markers of the last one."""
    commit_timeout_ms: int = 30_000
    """The time that a record may wait for the replicas. Kafka uses the transaction's own timeout."""
    marker_backoff_ms: int = 20
    """The first wait before end markers are tried again; it doubles up to `marker_backoff_max_ms`."""
    marker_backoff_max_ms: int = 1_000
