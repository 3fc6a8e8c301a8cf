"""Settings of the group coordinator, typed; the broker fills them from Kafka's dotted names."""

from dataclasses import dataclass

__all__ = ["GroupConfig"]

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Each field names Kafka's setting; defaults are Kafka's but for the initial rebalance delay.

    Kafka waits three seconds for more members before a group's first generation. With an embedded broker in a test few
    consumers start at once, so the default here is not to wait.
    """

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 0
    """group.initial.rebalance.delay.ms"""
    settle_ms: int = 20
    """The wait before a group's first generation when initial_rebalance_delay_ms is 0: about what Kafka's timers and
    batching take there, and enough for consumers that start at the same moment to meet."""
    max_size: int = 2**31 - 1
    """group.max.size: members of one group."""
    new_member_join_timeout_ms: int = 300_000
    """The time that a member may wait for its first generation, a constant in Kafka."""
    pending_members_max: int = 10_000
    """Members of one group that were given an id and have not joined with it yet (KIP-394); Kafka has no bound."""
    member_metadata_max_bytes: int = 1024**2 + 12
    """Protocols of one member, summed: message.max.bytes, because a larger one could never be written to the log."""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes"""
    offsets_retention_ms: int = 7 * _DAY_MS
    """offsets.retention.minutes"""
    offset_commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms"""
    history_events_max: int = 32
    """Rebalances that each group remembers with their reasons."""
