"""A follower of a partition, as the leader knows it from the follower's Fetch requests.

Source: Kafka's replication design; KIP-16 (lag by time), KIP-903 (broker epochs).
"""

import math
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.records.file_slice import FileSlice
from barnabas.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

__all__ = ["NEVER", "NO_BROKER_EPOCH", "BrokerState", "FollowerFetch", "FollowerRead", "IsrChange", "Replica"]

NEVER: Final = -math.inf
"""A time before all others."""
NO_BROKER_EPOCH: Final = -1
"""Stands for an unknown broker epoch, which the leader and the controller do not check."""


class FollowerFetch(NamedTuple):
    """A follower's part of a Fetch request for one partition. The follower has all records below `fetch_offset`.

    `last_fetched_epoch` is the leader epoch of the follower's last batch; -1 if it has none.
    """

    fetch_offset: Offset
    leader_epoch: LeaderEpoch
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset


class BrokerState(NamedTuple):
    """A member of a proposed ISR. The controller refuses it if the broker has registered again in a newer epoch."""

    broker_id: BrokerId
    broker_epoch: int


class IsrChange(NamedTuple):
    """A change of the ISR that a leader proposes to the controller (AlterPartition).

    The controller makes the change only if the partition is still in this leader epoch and partition epoch.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: LeaderEpoch
    partition_epoch: int
    new_isr: tuple[BrokerState, ...]


class FollowerRead:
    """The leader's answer to a `FollowerFetch`."""

    __slots__ = ("diverging_epoch", "high_watermark", "isr_change", "log_start_offset", "records")

    def __init__(
        self,
        records: FileSlice | None,
        high_watermark: Offset,
        log_start_offset: Offset,
        diverging_epoch: tuple[LeaderEpoch, Offset] | None = None,
    ) -> None:
        self.records = records
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        """The leader epoch and end offset up to which the logs can agree; the follower truncates its log by it
        (KIP-595)."""
        self.isr_change: IsrChange | None = None
        """The change of the ISR that this fetch has made possible, to be sent to the controller."""


class Replica:
    """The state of one follower in the current leader epoch. Times are seconds of `Clock.monotonic`."""

    __slots__ = (
        "_last_fetch",
        "_last_fetch_leader_end_offset",
        "broker_epoch",
        "broker_id",
        "last_caught_up",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: BrokerId, last_caught_up: float = NEVER) -> None:
        """A member of the ISR counts as caught up at the election. Any other replica has to prove it first."""
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        """The epoch of the registration under which the follower sent its last request."""
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET
        """The end of the follower's log; -1 before its first fetch in this leader epoch."""
        self.last_caught_up = last_caught_up
        """The latest time at which the follower is known to have had all records of the leader."""
        self._last_fetch = NEVER
        self._last_fetch_leader_end_offset = NO_OFFSET

    def __repr__(self) -> str:
        return f"Replica({self.broker_id}, log_end_offset={self.log_end_offset}, epoch={self.broker_epoch})"

    @property
    def has_fetched(self) -> bool:
        return self.log_end_offset >= 0

    def update(self, fetch: FollowerFetch, broker_epoch: int, leader_end_offset: Offset, now: float) -> None:
        """Notes a fetch that arrived at `now`, when the leader's log ended at `leader_end_offset`.

        A follower that has reached the end of the log as it was at the fetch before had caught up at that time. So a
        follower counts as caught up under a steady load, too, although there are always newer records.
        """
        offset = fetch.fetch_offset
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self._last_fetch_leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, self._last_fetch)
        self.log_end_offset = offset
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch = now
        self._last_fetch_leader_end_offset = max(leader_end_offset, self._last_fetch_leader_end_offset)

    def had_all(self, at: float) -> None:
        """Notes that the follower had all records of the leader at the time `at`."""
        self.last_caught_up = max(self.last_caught_up, at)
        self._last_fetch = max(self._last_fetch, at)

    def is_caught_up(self, leader_end_offset: Offset, now: float, lag_time_max_s: float) -> bool:
        """Returns whether the follower has all records, or had all of them at most `lag_time_max_s` ago."""
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= lag_time_max_s
