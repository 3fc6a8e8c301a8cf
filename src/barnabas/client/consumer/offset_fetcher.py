"""Finds the positions of assigned partitions: committed offsets, resets, and validation with new leaders.

The requests are sent in the network client's turns. Errors that are not retriable are kept for the application. A
request whose time is over is sent again: a consumer waits for brokers that are away, however long it takes.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from barnabas.client.consumer.group.offset_commits import OffsetCommits
from barnabas.client.consumer.subscription_state import SubscriptionState
from barnabas.client.fetch.list_offsets import epoch_ends, list_offsets
from barnabas.client.fetch.positions import NO_NODE, FetchPosition, ResetStrategy
from barnabas.client.offset_messages import LATEST, OffsetAndMetadata, PartitionOffset
from barnabas.connection.network_client import NetworkClient
from barnabas.connection.promise import Promise
from barnabas.errors import (
    BarnabasError,
    LeaderNotAvailable,
    LogTruncation,
    NoOffsetForPartition,
    OperationTimedOut,
    UnsupportedVersion,
)
from barnabas.types import NO_LEADER_EPOCH, NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

__all__ = ["OffsetFetcher"]

_log = logging.getLogger("barnabas.consumer")


class OffsetFetcher:
    def __init__(
        self,
        client: NetworkClient,
        subscription: SubscriptionState,
        commits: OffsetCommits | None,
        *,
        read_committed: bool,
        timeout_s: float,
        wall_ms: Callable[[], int],
        on_position_known: Callable[[], None],
    ) -> None:
        self._failures: dict[str, BarnabasError] = {}
        """The errors for the application by their texts, oldest first."""
        self._client = client
        self._subscription = subscription
        self._commits = commits
        self._read_committed = read_committed
        self._timeout_s = timeout_s
        self._wall_ms = wall_ms
        self._on_position_known = on_position_known
        self._fetches_committed = False
        """Whether a request for committed offsets is in flight."""
        self._fetch_committed_at = float("-inf")
        """The earliest time of the next request for committed offsets."""
        self._failed = 0
        """The number of retries since a round of requests without any."""
        self._retry_at = float("-inf")
        """The time of the last retry. It is joined by all that fails before it."""
        self._next_check_at = float("-inf")
        """The time of the next check for work; in the past whenever a state may have changed."""

    def changed(self) -> None:
        """Checks at once: partitions or positions have changed."""
        self._next_check_at = float("-inf")
        for key, error in list(self._failures.items()):
            if not self._is_current(error):
                del self._failures[key]

    def _is_current(self, error: BarnabasError) -> bool:
        """Whether the application has not sought since, and the partition is still assigned."""
        if isinstance(error, LogTruncation):
            state = self._subscription.get(error.partition)
            return state is not None and state.position == error.position and not state.is_valid
        if isinstance(error, NoOffsetForPartition):
            starting = self._subscription.initializing()
            return any(partition in starting for partition in error.partitions)
        return True

    def take_failure(self) -> BarnabasError | None:
        """Returns the oldest error, once."""
        return self._failures.pop(next(iter(self._failures))) if self._failures else None

    @property
    def has_failed(self) -> bool:
        return bool(self._failures)

    def _fail(self, error: BarnabasError) -> None:
        self._failures[str(error)] = error

    def advance(self, now: float) -> None:
        if now < self._next_check_at:
            return
        self._next_check_at = float("inf")
        self._fetch_committed(now)
        self._reset(now)
        self._validate(now)

    def next_deadline(self) -> float:
        return self._next_check_at

    def _leader(self, partition: TopicPartition) -> tuple[BrokerId, LeaderEpoch]:
        view = self._client.metadata.partition(partition)
        return (NO_NODE, NO_LEADER_EPOCH) if view is None else (view.leader, view.leader_epoch)

    def _retry_later(self, partitions: Iterable[TopicPartition], error: BaseException) -> float:
        """Puts off the next request, and keeps an error that is not retriable. Returns the time of the next request."""
        if self._retry_at <= self._client.now:
            self._failed += 1
            self._retry_at = self._client.now + self._client.backoff_s(self._failed)
            self._client.at(self._retry_at, self.changed)
        self._subscription.request_failed(partitions, self._retry_at)
        if isinstance(error, OperationTimedOut | LeaderNotAvailable):
            _log.warning("looking up positions again: %s", error)
        elif isinstance(error, BarnabasError) and not getattr(error, "retriable", False):
            self._fail(error)
        return self._retry_at

    # --- committed offsets ------------------------------------------------------------------------------------------

    def _fetch_committed(self, now: float) -> None:
        starting = self._subscription.initializing()
        if not starting or self._fetches_committed or now < self._fetch_committed_at:
            return
        if self._commits is None:
            self._reset_uncommitted(starting)
            return
        self._fetches_committed = True
        asked = {partition: self._subscription.get(partition) for partition in starting}

        def found(promise: Promise[dict[TopicPartition, OffsetAndMetadata | None]]) -> None:
            self._fetches_committed = False
            if promise.error is not None:
                self._fetch_committed_at = self._retry_later((), promise.error)
                return
            self._failed = 0
            # A partition that was revoked and assigned again meanwhile may have been read and committed by another
            # member: the response is too old then.
            still = {w: committed for w, committed in promise.result().items() if self._subscription.get(w) is asked[w]}
            self._take_committed(still)
            self.changed()
            self._on_position_known()

        self._commits.committed(starting, self._timeout_s).on_done(found)

    def _take_committed(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        for partition, committed in found.items():
            if committed is not None:
                self._subscription.start_at(partition, committed, *self._leader(partition))
        self._reset_uncommitted([partition for partition, committed in found.items() if committed is None])

    def _reset_uncommitted(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self._subscription.reset_without_commit(partitions)
        except BarnabasError as error:
            # the application has to seek, and gets the error with every poll until it does
            self._fetch_committed_at = self._retry_later((), error)

    # --- resets -----------------------------------------------------------------------------------------------------

    def _reset(self, now: float) -> None:
        wanted = self._subscription.partitions_needing_reset(now)
        if not wanted:
            return
        wall_ms = self._wall_ms()
        self._look_up_resets(wanted, {partition: strategy.timestamp(wall_ms) for partition, strategy in wanted.items()})

    def _look_up_resets(
        self, wanted: Mapping[TopicPartition, ResetStrategy], timestamps: Mapping[TopicPartition, int]
    ) -> None:
        self._subscription.request_failed(timestamps, float("inf"))
        beyond: dict[TopicPartition, int] = {}

        def each(partition: TopicPartition, found: PartitionOffset) -> None:
            if found.offset == NO_OFFSET and timestamps[partition] >= 0:
                beyond[partition] = LATEST  # no record is as new as the timestamp
                return
            position = FetchPosition(max(found.offset, 0), NO_LEADER_EPOCH, *self._leader(partition))
            if self._subscription.reset_to(partition, wanted[partition], position):
                _log.info("%s: reset to %s, offset %d", partition, wanted[partition], position.offset)
                self._on_position_known()

        def done(promise: Promise[dict[TopicPartition, PartitionOffset]]) -> None:
            if promise.error is not None:
                self._retry_later(timestamps, promise.error)
            elif beyond:
                self._look_up_resets(wanted, beyond)
            else:
                self._failed = 0

        list_offsets(
            self._client, timestamps, read_committed=self._read_committed, timeout_s=self._timeout_s, each=each
        ).on_done(done)

    # --- validation -------------------------------------------------------------------------------------------------

    def _validate(self, now: float) -> None:
        wanted = self._subscription.partitions_needing_validation(now)
        if not wanted:
            return
        self._subscription.request_failed(wanted, float("inf"))
        refused: list[TopicPartition] = []

        def each(partition: TopicPartition, found: tuple[LeaderEpoch, Offset]) -> None:
            asked = wanted[partition]
            self._on_position_known()
            error = self._subscription.validated(partition, asked, *found, self._client.now)
            if error is not None:
                refused.append(partition)
                self._client.metadata.request_update()
                self._retry_later([partition], error)
                return
            state = self._subscription.get(partition)
            after = None if state is None else state.position
            if after is None or after.offset != asked.offset:
                to = "a reset" if after is None else f"offset {after.offset}"
                _log.warning("%s: the log was cut below %s: going on from %s", partition, asked, to)
                self.changed()

        def done(promise: Promise[dict[TopicPartition, tuple[LeaderEpoch, Offset]]]) -> None:
            if isinstance(promise.error, UnsupportedVersion):
                for partition, asked in wanted.items():
                    state = self._subscription.get(partition)
                    if state is not None and state.position == asked:
                        state.seek(asked)  # brokers before 2.3 cannot validate positions
                self._on_position_known()
            elif promise.error is not None:
                self._retry_later(wanted, promise.error)
            elif not refused:
                self._failed = 0

        epochs = {partition: position.offset_epoch for partition, position in wanted.items()}
        epoch_ends(self._client, epochs, self._timeout_s, each).on_done(done)
