"""The position of a reader in one partition, its validity, and the reasons why the partition is not fetched."""

from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.client.offset_messages import EARLIEST, LATEST, OffsetAndMetadata
from barnabas.client.settings.consumer import BY_DURATION, duration_ms
from barnabas.types import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, TopicPartition

__all__ = [
    "NO_NODE",
    "STALE_S",
    "AssignedPartitions",
    "FetchPosition",
    "FetchState",
    "PartitionState",
    "ResetStrategy",
]

NO_NODE: Final = BrokerId(-1)
STALE_S: Final = 5.0
"""The time for which answers of leaders that must have been replaced are not believed. One that nobody has replaced
until then has lost its log, or the topic was made anew."""


class ResetStrategy(NamedTuple):
    """The offset that a partition without a valid position is reset to: `auto.offset.reset`, or the application's
    seek."""

    kind: str
    """earliest, latest, none or by_duration."""
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> "ResetStrategy":
        """Returns the strategy of a setting's text, which has been checked."""
        if text.startswith(BY_DURATION):
            return cls("by_duration", duration_ms(text.removeprefix(BY_DURATION)) or 0)
        return cls(text)

    def timestamp(self, now_ms: int) -> int:
        """Returns the timestamp to ask ListOffsets for."""
        if self.kind == "by_duration":
            return max(0, now_ms - self.duration_ms)
        return EARLIEST if self.kind == "earliest" else LATEST

    def __str__(self) -> str:
        return self.kind


class FetchPosition(NamedTuple):
    """The next offset to read, the epoch of the record before it, and the leader that this was last checked with."""

    offset: int
    offset_epoch: int = NO_LEADER_EPOCH
    leader: BrokerId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH

    def __str__(self) -> str:
        return f"offset {self.offset}, epoch {self.offset_epoch}"


class FetchState(Enum):
    """The states of a partition's position."""

    INITIALIZING = "initializing"
    """The committed offset is not known yet."""
    FETCHING = "fetching"
    AWAIT_RESET = "awaiting reset"
    """The log has no record at the offset, or no offset was committed."""
    AWAIT_VALIDATION = "awaiting validation"
    """The leader changed: its log may have been truncated below the position (KIP-320)."""


class PartitionState:
    """The state of one assigned partition. Times are those of the caller's clock, in seconds."""

    __slots__ = (
        "doubted_until",
        "empty_at",
        "fetch_until",
        "high_watermark",
        "is_asked_for",
        "last_stable_offset",
        "log_start_offset",
        "paused",
        "pending_callback",
        "pending_revocation",
        "position",
        "preferred_replica",
        "preferred_until",
        "reset",
        "resumed_from",
        "retry_at",
        "state",
    )

    def __init__(self) -> None:
        self.state = FetchState.INITIALIZING
        self.position: FetchPosition | None = None
        """The position, None while initializing and awaiting a reset."""
        self.reset: ResetStrategy | None = None
        """The strategy of the reset that is awaited."""
        self.retry_at = float("-inf")
        """The time of the next attempt to reset or to validate the position."""
        self.doubted_until = float("inf")
        """The time until which answers of leaders of an earlier epoch than the position's are not believed; infinite
        before the first one."""
        self.paused = False
        """Whether the application has paused the partition."""
        self.pending_revocation = False
        """Whether the rebalance listener is called because the partition is revoked."""
        self.pending_callback = False
        """Whether the rebalance listener was not called yet for the new partition."""
        self.resumed_from: OffsetAndMetadata | None = None
        """The commit that the position comes from, until the application seeks."""
        self.is_asked_for = False
        """Whether the application waits for the position."""
        self.high_watermark: int = NO_OFFSET
        self.last_stable_offset: int = NO_OFFSET
        self.log_start_offset: int = NO_OFFSET
        self.preferred_replica = NO_NODE
        self.preferred_until = float("-inf")
        self.fetch_until: int | None = None
        """The offset from which on records are not fetched."""
        self.empty_at: int = NO_OFFSET
        """The fetch offset of the last response that had neither records nor an error."""

    @property
    def is_valid(self) -> bool:
        """Whether the position may be read from and committed."""
        return self.state is FetchState.FETCHING

    @property
    def is_fetchable(self) -> bool:
        return self.state is FetchState.FETCHING and not (
            self.paused or self.pending_revocation or self.pending_callback
        )

    def seek(self, position: FetchPosition) -> None:
        """Sets a position that needs no validation."""
        self.state, self.position, self.reset = FetchState.FETCHING, position, None
        self.retry_at = float("-inf")
        self.doubted_until = float("inf")

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Sets a position that the leader has to validate, if the epochs are known."""
        self.seek(position)
        if position.offset_epoch != NO_LEADER_EPOCH and position.leader_epoch != NO_LEADER_EPOCH:
            self.state = FetchState.AWAIT_VALIDATION

    def stands_at(self) -> OffsetAndMetadata | None:
        """Returns the position as it would be committed, with the metadata of the commit that it comes from if it has
        not moved since."""
        position, resumed = self.position, self.resumed_from
        if position is None:
            return None
        note = resumed.metadata if resumed is not None and resumed.offset == position.offset else ""
        return OffsetAndMetadata(position.offset, note, position.offset_epoch)

    def await_reset(self, strategy: ResetStrategy) -> None:
        self.state, self.position, self.reset = FetchState.AWAIT_RESET, None, strategy
        self.resumed_from = None
        self.retry_at = float("-inf")

    def advance(self, offset: int, offset_epoch: int) -> None:
        """Moves the position behind records that were returned; the last of them had this epoch."""
        assert self.position is not None
        self.position = self.position._replace(offset=offset, offset_epoch=offset_epoch)

    def follow_leader(self, leader: BrokerId, leader_epoch: LeaderEpoch, *, can_validate: bool) -> None:
        """Takes over the leader that the metadata have. Another leader, or a later epoch of the same leader, may have a
        shorter log: the position is validated, if `can_validate`."""
        position = self.position
        if position is None or leader == NO_NODE or (position.leader, position.leader_epoch) == (leader, leader_epoch):
            return
        self.preferred_replica = NO_NODE
        moved = position._replace(leader=leader, leader_epoch=leader_epoch)
        if can_validate:
            self.seek_unvalidated(moved)
        else:
            self.seek(moved)
        if leader_epoch < position.leader_epoch:
            self.doubted_until = float("-inf")  # the topic was made anew, and its leaders begin at the first epoch

    def doubts_answer(self, now: float) -> bool:
        """Returns whether an answer that contradicts the position is not believed yet, because its leader's epoch is
        earlier than the position's: most likely it was replaced, and does not know of it."""
        position = self.position
        assert position is not None
        if position.leader_epoch >= position.offset_epoch:
            return False
        if self.doubted_until == float("inf"):
            self.doubted_until = now + STALE_S
        return now < self.doubted_until

    def diverging(self, end_epoch: int, end_offset: int) -> OffsetAndMetadata | None:
        """Returns the offset and the epoch to which the log and the position agree, None if they agree altogether. The
        leader's largest epoch that is not above the position's one is `end_epoch`, and ends at `end_offset`; both are
        -1 if it has none, and so is then the offset that is returned."""
        position = self.position
        assert position is not None
        if end_offset == NO_OFFSET or end_epoch == NO_LEADER_EPOCH:
            return OffsetAndMetadata(NO_OFFSET, "", NO_LEADER_EPOCH)
        if end_offset < position.offset or end_epoch < position.offset_epoch:
            # an epoch that ends at or behind the position, but is an earlier one, does not contain it either
            return OffsetAndMetadata(min(end_offset, position.offset), "", end_epoch)
        return None

    def note_offsets(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        """Takes over the offsets of a Fetch response; -1 stands for an offset that it does not have."""
        if high_watermark >= 0:
            self.high_watermark = high_watermark
        if last_stable_offset >= 0:
            self.last_stable_offset = last_stable_offset
        if log_start_offset >= 0:
            self.log_start_offset = log_start_offset

    def prefer_replica(self, node: BrokerId, until: float) -> None:
        """Fetches from a follower that the leader has named (KIP-392)."""
        if self.preferred_replica != node:
            self.preferred_replica, self.preferred_until = node, until

    def preferred_replica_at(self, now: float) -> BrokerId:
        """Returns the replica to fetch from instead of the leader, -1 for none. It expires, so that the leader can name
        another one."""
        if now > self.preferred_until:
            self.preferred_replica = NO_NODE
        return self.preferred_replica

    def clear_preferred_replica(self) -> bool:
        """Fetches from the leader again; returns whether a replica was preferred."""
        had_one = self.preferred_replica != NO_NODE
        self.preferred_replica = NO_NODE
        return had_one

    def lag(self, *, read_committed: bool) -> int | None:
        """Returns the number of records behind the position as of the last response; None before the first one."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end == NO_OFFSET:
            return None
        return max(0, end - self.position.offset)


class AssignedPartitions(Protocol):
    """The partitions that a Fetcher fetches. Their owner assigns them and sets their positions."""

    def assigned(self) -> list[TopicPartition]:
        """Returns the partitions in the order in which they are read next."""

    def get(self, topic_partition: TopicPartition, /) -> PartitionState | None:
        """Returns the state of a partition, None if it is not assigned."""

    def take_turn(self, topic_partition: TopicPartition, /) -> None:
        """Moves a partition that was read to the end of the order."""

    def request_reset(self, topic_partition: TopicPartition, /) -> None:
        """Drops a position whose offset the log does not have. Raises NoOffsetForPartition without a reset strategy."""
