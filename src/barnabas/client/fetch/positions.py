"""Where a consumer stands in one partition: its position, how sure it is of it, and what keeps it from fetching.

A position is initializing (nothing known yet), fetching, awaiting a reset (the log has no such offset, or none was
committed), or awaiting validation (another leader: the log may have been cut below it, KIP-320).
"""

from enum import Enum
from typing import Final, NamedTuple

from barnabas.client.offset_messages import EARLIEST, LATEST, OffsetAndMetadata
from barnabas.client.settings.consumer import BY_DURATION, duration_ms
from barnabas.types import NO_LEADER_EPOCH, NO_OFFSET

__all__ = ["FetchPosition", "FetchState", "PartitionState", "ResetStrategy"]

NO_NODE: Final = -1


class ResetStrategy(NamedTuple):
    """Where to begin without a valid position: `auto.offset.reset`, or what the application asked for."""

    kind: str
    """earliest, latest, none or by_duration."""
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> "ResetStrategy":
        """Of the setting's text, which has been checked."""
        if text.startswith(BY_DURATION):
            return cls("by_duration", duration_ms(text.removeprefix(BY_DURATION)) or 0)
        return cls(text)

    def timestamp(self, now_ms: int) -> int:
        """What to ask ListOffsets for. With by_duration a log that has nothing so new answers -1: then its end."""
        if self.kind == "by_duration":
            return max(0, now_ms - self.duration_ms)
        return EARLIEST if self.kind == "earliest" else LATEST

    def __str__(self) -> str:
        return self.kind


class FetchPosition(NamedTuple):
    """The next offset to read, the epoch of the record before it, and the leader that this was last checked with."""

    offset: int
    offset_epoch: int = NO_LEADER_EPOCH
    leader: int = NO_NODE
    leader_epoch: int = NO_LEADER_EPOCH

    def __str__(self) -> str:
        return f"offset {self.offset}, epoch {self.offset_epoch}"


class FetchState(Enum):
    """See the module."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "awaiting reset"
    AWAIT_VALIDATION = "awaiting validation"


class PartitionState:
    """One assigned partition. Times are those of the caller's clock, in seconds."""

    __slots__ = (
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
        """None while initializing and awaiting a reset."""
        self.reset: ResetStrategy | None = None
        """What is asked for while awaiting a reset."""
        self.retry_at = float("-inf")
        """When to ask again for what the state awaits."""
        self.paused = False
        """By the application."""
        self.pending_revocation = False
        """The listener is being told that it goes."""
        self.pending_callback = False
        """The listener has not been told yet that it came."""
        self.resumed_from: OffsetAndMetadata | None = None
        """The commit that the position comes from, until the application seeks."""
        self.is_asked_for = False
        """The application waits to hear the position."""
        self.high_watermark = NO_OFFSET
        self.last_stable_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.preferred_replica = NO_NODE
        self.preferred_until = float("-inf")
        self.fetch_until: int | None = None
        """Nothing is asked for from this offset on."""
        self.empty_at = NO_OFFSET
        """Where the last answer without records and without an error was asked for."""

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
        """From here on, without a question."""
        self.state, self.position, self.reset = FetchState.FETCHING, position, None
        self.retry_at = float("-inf")

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """From here on, once the leader has confirmed that its log holds what comes before; without epochs there is
        nothing to confirm."""
        self.seek(position)
        if position.offset_epoch != NO_LEADER_EPOCH and position.leader_epoch != NO_LEADER_EPOCH:
            self.state = FetchState.AWAIT_VALIDATION

    def stands_at(self) -> OffsetAndMetadata | None:
        """The position as a commit says it. At the offset of the commit that it comes from, with that one's note."""
        position, resumed = self.position, self.resumed_from
        if position is None:
            return None
        note = resumed.metadata if resumed is not None and resumed.offset == position.offset else ""
        return OffsetAndMetadata(position.offset, note, position.offset_epoch)

    def await_reset(self, strategy: ResetStrategy) -> None:
        self.state, self.position, self.reset = FetchState.AWAIT_RESET, None, strategy
        self.resumed_from = None
        self.retry_at = float("-inf")

    def follow_leader(self, leader: int, leader_epoch: int, *, can_validate: bool) -> None:
        """The partition's leader as metadata has it now. Another one, or a later epoch of the same, may have a shorter
        log. `can_validate`: the leader answers OffsetsForLeaderEpoch of a useful version."""
        position = self.position
        if position is None or leader == NO_NODE or (position.leader, position.leader_epoch) == (leader, leader_epoch):
            return
        self.preferred_replica = NO_NODE
        moved = position._replace(leader=leader, leader_epoch=leader_epoch)
        if can_validate:
            self.seek_unvalidated(moved)
        else:
            self.seek(moved)

    def lag(self, *, read_committed: bool) -> int | None:
        """Records that are there and were not read, as far as the last answer said; None if none came yet."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if self.position is None or end == NO_OFFSET:
            return None
        return max(0, end - self.position.offset)
