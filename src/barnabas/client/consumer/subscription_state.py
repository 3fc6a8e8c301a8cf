"""The state of a consumer's subscription: its topics or its partitions assigned by hand, and its positions in them.

Fetches, resets, commits and rebalances share this state. It sends no requests: `initializing` and
`partitions_needing_*` return the partitions for which a request is needed.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

from barnabas.client.fetch.positions import FetchPosition, FetchState, PartitionState, ResetStrategy
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import LogTruncation, NoOffsetForPartition, UnknownLeaderEpoch, UsageError
from barnabas.types import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, TopicPartition

__all__ = ["AssignmentChange", "Pattern", "SubscriptionKind", "SubscriptionState"]


class SubscriptionKind(Enum):
    """The ways to get partitions, of which a consumer uses one until `unsubscribe`."""

    NONE = "nothing"
    TOPICS = "a list of topics"
    PATTERN = "a pattern of topics"
    MANUAL = "partitions assigned by hand"


class AssignmentChange(NamedTuple):
    added: tuple[TopicPartition, ...]
    removed: tuple[TopicPartition, ...]


class Pattern(Protocol):
    """A compiled regular expression, or an object with the same method."""

    def fullmatch(self, string: str, /) -> object | None: ...


class SubscriptionState:
    def __init__(self, reset: ResetStrategy, *, exclude_internal_topics: bool = True) -> None:
        self.kind = SubscriptionKind.NONE
        self.reset = reset
        """The strategy of `auto.offset.reset`."""
        self.topics: frozenset[str] = frozenset()
        """The subscribed topics; for a pattern those in the last metadata."""
        self._exclude_internal = exclude_internal_topics
        self._pattern: Pattern | None = None
        self._states: dict[TopicPartition, PartitionState] = {}

    # --- the subscription -------------------------------------------------------------------------------------------

    def _become(self, kind: SubscriptionKind) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise UsageError(f"this consumer reads {self.kind.value}; unsubscribe before you give it {kind.value}")
        self.kind = kind

    def subscribe(self, topics: Iterable[Any]) -> bool:
        """Subscribes to a list of topics. Returns whether they have changed, so that the group has to rebalance."""
        if isinstance(topics, str):
            raise UsageError(f"subscribe takes a list of topics: [{topics!r}]")
        try:
            names = frozenset(topics)
        except TypeError:
            raise UsageError(f"subscribe takes names of topics, or one pattern alone, not {topics!r}") from None
        if not all(isinstance(name, str) and name for name in names):
            raise UsageError(f"a topic has a name: {sorted(map(repr, names))}")
        if not names:
            raise UsageError("there is no topic to subscribe to; use unsubscribe to give all up")
        self._become(SubscriptionKind.TOPICS)
        return self._change_topics(names)

    def subscribe_pattern(self, pattern: Pattern) -> None:
        """Subscribes to topics whose whole names match; `match_pattern` then finds those that exist."""
        self._become(SubscriptionKind.PATTERN)
        self._pattern = pattern

    def match_pattern(self, topics: Iterable[tuple[str, bool]]) -> bool:
        """Compares the pattern with all topics (name, whether internal). Returns whether other topics match now."""
        assert self._pattern is not None
        matching = self._pattern.fullmatch
        names = (name for name, internal in topics if not (internal and self._exclude_internal) and matching(name))
        return self._change_topics(frozenset(names))

    def _change_topics(self, topics: frozenset[str]) -> bool:
        changed, self.topics = topics != self.topics, topics
        return changed

    @property
    def subscribes(self) -> bool:
        """Whether partitions are assigned by the group, or without a group by the consumer itself."""
        return self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)

    @property
    def has_pattern(self) -> bool:
        return self.kind is SubscriptionKind.PATTERN

    def assign(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assigns partitions by hand. Those that stay keep their positions. Returns whether the topics have changed."""
        wanted = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        self._become(SubscriptionKind.MANUAL)
        if not wanted:
            self.kind = SubscriptionKind.NONE
        if wanted.keys() != self._states.keys():
            self._set_assignment(wanted)
        return self._change_topics(frozenset(partition.topic for partition in wanted))

    def assign_subscribed(self, partitions: Iterable[TopicPartition]) -> AssignmentChange:
        """Assigns partitions of the subscribed topics. Those that stay keep their positions."""
        assert self.subscribes, self.kind
        wanted = dict.fromkeys(partitions)
        added = tuple(partition for partition in wanted if partition not in self._states)
        removed = tuple(partition for partition in self._states if partition not in wanted)
        self._set_assignment(wanted)
        return AssignmentChange(added, removed)

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        self._states = {partition: self._states.get(partition) or PartitionState() for partition in partitions}

    def is_subscribed(self, partition: TopicPartition) -> bool:
        """Whether a partition fits the subscription, which may have changed since the group rebalanced."""
        if self._pattern is not None:
            return self._pattern.fullmatch(partition.topic) is not None
        return partition.topic in self.topics

    def unsubscribe(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.topics = frozenset()
        self._pattern = None
        self._set_assignment(())

    # --- the assignment ---------------------------------------------------------------------------------------------

    def assigned(self) -> list[TopicPartition]:
        """Returns the partitions in the order in which they are fetched."""
        return list(self._states)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise UsageError(f"{partition} is not assigned to this consumer")
        return state

    def _partitions_with(self, wanted: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        return [partition for partition, state in self._states.items() if wanted(state)]

    def take_turn(self, partition: TopicPartition) -> None:
        """Moves a partition to the end of the order in which partitions are fetched."""
        states = self._states
        if partition in states:  # no call between the next steps: a KeyboardInterrupt there would lose the partition
            state = states[partition]
            del states[partition]
            states[partition] = state

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self._state(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self._state(partition) for partition in partitions]:
            state.paused = False

    def paused(self) -> list[TopicPartition]:
        return self._partitions_with(lambda state: state.paused)

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops the fetches of partitions that will be given up once the listener was called."""
        for partition in partitions:
            self._state(partition).pending_revocation = True

    def mark_pending_callback(self, partitions: Iterable[TopicPartition], pending: bool) -> None:
        """Puts off the fetches of new partitions until the listener was called, which may seek."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                state.pending_callback = pending

    def pending_callback(self) -> list[TopicPartition]:
        """Returns the new partitions for which the listener was not called yet."""
        return self._partitions_with(lambda state: state.pending_callback)

    # --- positions --------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """Returns the position, None if there is no valid one."""
        state = self._state(partition)
        return state.position if state.is_valid else None

    def seek(self, partition: TopicPartition, offset: int, offset_epoch: int = NO_LEADER_EPOCH) -> None:
        """Sets the position for the application. With an epoch the leader is asked whether its log agrees."""
        if offset < 0:
            raise UsageError(f"{partition}: offset {offset} is negative")
        state = self._state(partition)
        leader, leader_epoch = (state.position or FetchPosition(0))[2:]
        state.seek_unvalidated(FetchPosition(offset, offset_epoch, leader, leader_epoch))
        state.resumed_from = None

    def start_at(
        self, partition: TopicPartition, committed: OffsetAndMetadata, leader: BrokerId, leader_epoch: LeaderEpoch
    ) -> None:
        """Sets the position to a committed offset, if the partition has not got another one meanwhile."""
        state = self._states.get(partition)
        if state is not None and state.state is FetchState.INITIALIZING:
            state.seek_unvalidated(FetchPosition(committed.offset, committed.leader_epoch, leader, leader_epoch))
            state.resumed_from = committed

    def resume_at(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Moves the position back to the first record that `process` has not done."""
        self.seek(partition, offset.offset)
        self._states[partition].resumed_from = offset

    def rewind(self, partition: TopicPartition, before: OffsetAndMetadata) -> None:
        """Moves the position back to `before`: the records since were not delivered."""
        state = self._states.get(partition)
        if state is not None and state.position is not None:
            state.advance(before.offset, before.leader_epoch)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns all valid positions."""
        return {
            partition: stands
            for partition, state in self._states.items()
            if state.is_valid and (stands := state.stands_at()) is not None
        }

    def is_fetchable(self, partition: TopicPartition) -> bool:
        state = self._states.get(partition)
        return state is not None and state.is_fetchable

    def initializing(self) -> list[TopicPartition]:
        """Returns the partitions without a position, whose committed offsets are fetched next. New partitions wait
        until the listener was called, unless the application requests their positions."""
        return self._partitions_with(
            lambda state: state.state is FetchState.INITIALIZING and (state.is_asked_for or not state.pending_callback)
        )

    def request_failed(self, partitions: Iterable[TopicPartition], retry_at: float) -> None:
        """Puts off the next request for these partitions."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                state.retry_at = retry_at

    # --- resets -----------------------------------------------------------------------------------------------------

    def request_reset(self, partition: TopicPartition, strategy: ResetStrategy | None = None) -> None:
        """Drops the position and awaits a reset. Raises NoOffsetForPartition without a reset strategy."""
        state = self._state(partition)
        chosen = strategy or self.reset
        if chosen.kind == "none":
            raise NoOffsetForPartition([partition], "there is no valid offset")
        state.await_reset(chosen)

    def reset_without_commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Resets partitions without a committed offset. Raises NoOffsetForPartition, for all of them, without a reset
        strategy."""
        starting = [
            partition
            for partition in partitions
            if partition in self._states and self._states[partition].state is FetchState.INITIALIZING
        ]
        if starting and self.reset.kind == "none":
            raise NoOffsetForPartition(starting)
        for partition in starting:
            self.request_reset(partition)

    def partitions_needing_reset(self, now: float) -> dict[TopicPartition, ResetStrategy]:
        """Returns the partitions whose offsets have to be looked up, with the strategies."""
        return {
            partition: state.reset
            for partition, state in self._states.items()
            if state.reset is not None and state.state is FetchState.AWAIT_RESET and state.retry_at <= now
        }

    def reset_to(self, partition: TopicPartition, strategy: ResetStrategy, position: FetchPosition) -> bool:
        """Sets the position that a reset has found. Returns whether that reset is still wanted."""
        state = self._states.get(partition)
        if state is None or state.state is not FetchState.AWAIT_RESET or state.reset != strategy:
            return False
        state.seek_unvalidated(position)
        return True

    # --- leaders and validation (KIP-320) ---------------------------------------------------------------------------

    def partitions_needing_validation(self, now: float) -> dict[TopicPartition, FetchPosition]:
        """Returns the positions to validate with OffsetsForLeaderEpoch."""
        return {
            partition: state.position
            for partition, state in self._states.items()
            if state.state is FetchState.AWAIT_VALIDATION and state.retry_at <= now and state.position is not None
        }

    def validated(
        self, partition: TopicPartition, asked: FetchPosition, end_epoch: int, end_offset: int, now: float
    ) -> LogTruncation | UnknownLeaderEpoch | None:
        """Takes over the leader's response: the end of its largest epoch that is not above the requested one. Confirms
        the position, moves it to the offset at which the logs diverge, or resets it. Returns the error if there is no
        reset strategy, or if the leader has to be looked up again."""
        state = self._states.get(partition)
        if state is None or state.state is not FetchState.AWAIT_VALIDATION or state.position != asked:
            return None
        diverging = state.diverging(end_epoch, end_offset)
        if diverging is not None and state.doubts_answer(now):
            return UnknownLeaderEpoch(
                f"{partition}: the leader's epoch {asked.leader_epoch} is earlier than the position"
            )
        if diverging is not None:
            return self._truncated(partition, asked, None if diverging.offset == NO_OFFSET else diverging)
        state.state = FetchState.FETCHING
        return None

    def _truncated(
        self, partition: TopicPartition, asked: FetchPosition, diverging: OffsetAndMetadata | None
    ) -> LogTruncation | None:
        if self.reset.kind == "none":
            return LogTruncation(partition, asked, diverging)
        if diverging is None:
            self.request_reset(partition)
        else:
            state = self._state(partition)
            state.seek(asked._replace(offset=diverging.offset, offset_epoch=diverging.leader_epoch))
            state.resumed_from = None
        return None

    def lag(self, *, read_committed: bool) -> Mapping[TopicPartition, int | None]:
        return {partition: state.lag(read_committed=read_committed) for partition, state in self._states.items()}
