"""Completes decided transactions: sends end markers to all partitions, then writes the record of the completion.

The decision is in the log; the state here is soft and starts anew after a load. Markers are sent in the loop turn after
the response to EndTxn, before any input is read, so a client whose partitions are on this broker finds its transaction
completed when it begins the next one. Requests that come earlier may wait here instead of being retried.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.coordinator.coordinator_runtime import CoordinatorRuntime, Scheduler, TimerHandle
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.transaction_coordinator_shard import TransactionCoordinatorShard
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata, TransactionState
from barnabas.errors import (
    InvalidProducerEpoch,
    KafkaError,
    NotCoordinator,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
from barnabas.types import ProducerId, TopicPartition

__all__ = ["EndMarkers", "MarkerChannel", "TransactionMarkerChannelManager"]

WAITERS_MAX: Final = 1_000
"""The bound on the requests that wait for the completion of one transaction. Further ones are refused, and clients
retry."""


class EndMarkers(NamedTuple):
    """The end markers of one transaction."""

    producer_id: ProducerId
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Sequence[TopicPartition]


Outcomes = dict[TopicPartition, KafkaError | None]

MarkerChannel = Callable[[EndMarkers, Callable[[Outcomes], None]], None]
"""Writes end markers, and replies when they are committed or have failed: once, or several times with a part of the
partitions each; maybe before it returns. UnknownTopicOrPartition says that a partition is certain to be deleted."""


class _Completion:
    """A transaction until its completion."""

    __slots__ = (
        *("backoff_ms", "coordinator_epoch", "handle", "in_flight", "metadata"),
        *("partition", "remaining", "waiters"),
    )

    def __init__(self, partition: int, coordinator_epoch: int, metadata: TransactionMetadata, backoff_ms: int) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.metadata = metadata
        self.remaining = set(metadata.partitions)
        """The partitions without an end marker."""
        self.in_flight: set[TopicPartition] = set()
        """Those to which one is on its way."""
        self.backoff_ms = backoff_ms
        self.handle: TimerHandle | None = None
        self.waiters: list[_Waiter] = []


class _Waiter:
    __slots__ = ("callback", "handle")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.handle: TimerHandle | None = None


class TransactionMarkerChannelManager:
    """Completes the decided transactions of all partitions that this broker coordinates."""

    def __init__(
        self,
        config: TransactionConfig,
        scheduler: Scheduler,
        send_markers: MarkerChannel,
        runtime: CoordinatorRuntime[TransactionCoordinatorShard, TransactionRecord],
        logger: logging.Logger,
    ) -> None:
        self._config = config
        self._scheduler = scheduler
        self._send_markers = send_markers
        self._runtime = runtime
        self._log = logger
        self._under_way: dict[str, _Completion] = {}

    # --- what others ask ----------------------------------------------------------------------------------------------

    def begin(
        self, partition: int, coordinator_epoch: int, transactional_id: str, metadata: TransactionMetadata
    ) -> None:
        """Sends the end markers of a decided transaction, beginning in the next turn of the loop."""
        before = self._under_way.get(transactional_id)
        completion = _Completion(partition, coordinator_epoch, metadata, self._config.marker_backoff_ms)
        if before is not None:
            # This broker leads the partition again, while end markers of its earlier leadership are in flight.
            self._cancel(before)
            completion.waiters = before.waiters
        self._under_way[transactional_id] = completion
        self._later(transactional_id, completion, 0)

    def wait(self, transactional_id: str, callback: Callable[[], None]) -> bool:
        """Calls back when the transaction is completed, or when that takes too long. Returns False if no request may
        wait."""
        completion = self._under_way.get(transactional_id)
        if completion is None or len(completion.waiters) >= WAITERS_MAX or self._config.add_wait_max_ms <= 0:
            return False
        waiter = _Waiter(callback)
        waiter.handle = self._scheduler.call_later(
            self._config.add_wait_max_ms / 1000, lambda: self._wake(completion.waiters, waiter)
        )
        completion.waiters.append(waiter)
        return True

    def without_marker(self, transactional_id: str, metadata: TransactionMetadata) -> Iterable[TopicPartition]:
        """Returns the partitions of a prepared transaction that have no end marker yet."""
        completion = self._under_way.get(transactional_id)
        return metadata.partitions if completion is None else completion.remaining

    def drop(self, partition: int) -> None:
        """Stops the work on a partition that another broker coordinates now. That broker sends the markers again."""
        for transactional_id in [key for key, entry in self._under_way.items() if entry.partition == partition]:
            self._finish(transactional_id, self._under_way[transactional_id])

    def leaders_changed(self) -> None:
        """Tries again at once what waits to be tried again, because partitions may have other leaders now."""
        for transactional_id, completion in self._under_way.items():
            if completion.handle is not None:
                self._cancel(completion)
                completion.backoff_ms = self._config.marker_backoff_ms
                self._later(transactional_id, completion, 0)

    def close(self) -> None:
        for transactional_id, completion in list(self._under_way.items()):
            self._finish(transactional_id, completion)

    # --- one step after the other -------------------------------------------------------------------------------------

    def _later(self, transactional_id: str, completion: _Completion, delay_ms: int) -> None:
        completion.handle = self._scheduler.call_later(
            delay_ms / 1000, lambda: self._step(transactional_id, completion)
        )

    def _step(self, transactional_id: str, completion: _Completion) -> None:
        completion.handle = None
        if not completion.remaining:
            self._complete(transactional_id, completion)
            return
        partitions = tuple(sorted(completion.remaining - completion.in_flight))
        if not partitions:
            return
        completion.in_flight.update(partitions)
        metadata = completion.metadata
        markers = EndMarkers(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            completion.coordinator_epoch,
            metadata.client_transaction_version,
            partitions,
        )
        self._send_markers(markers, lambda outcomes: self._marked(transactional_id, completion, outcomes))

    def _marked(self, transactional_id: str, completion: _Completion, outcomes: Outcomes) -> None:
        if self._under_way.get(transactional_id) is not completion:
            return
        completion.in_flight.difference_update(outcomes)
        failed: KafkaError | None = None
        for partition, error in outcomes.items():
            if isinstance(error, TransactionCoordinatorFenced):
                self._log.warning("%s is ended by another coordinator: %s", transactional_id, error)
                self._finish(transactional_id, completion)
                return
            if error is None or self._needs_none(transactional_id, partition, error):
                completion.remaining.discard(partition)
            else:
                failed = error
        if not completion.remaining:
            self._complete(transactional_id, completion)
        elif failed is not None and completion.handle is None:
            self._try_again(transactional_id, completion, "end markers", failed)

    def _needs_none(self, transactional_id: str, partition: TopicPartition, error: KafkaError) -> bool:
        """Returns whether the failure means that the partition has no records of the transaction."""
        if isinstance(error, UnknownTopicOrPartition | UnsupportedForMessageFormat):
            self._log.info("%s needs no end marker for %s: %s", partition, transactional_id, error)
            return True
        if isinstance(error, InvalidProducerEpoch):
            # Another client ended it there with a later epoch: Kafka leaves the transactional id unusable until a
            # restart.
            self._log.warning(
                "The transaction of %s was ended in %s by somebody: %s", transactional_id, partition, error
            )
            return True
        return False

    def _complete(self, transactional_id: str, completion: _Completion) -> None:
        def written(response: "KafkaError | None") -> None:
            # A late commit needs no action: the record is in the log, or a later leader writes it.
            if not isinstance(response, KafkaError) or self._under_way.get(transactional_id) is not completion:
                return
            shard = runtime.peek(completion.partition)
            if isinstance(response, NotCoordinator) or shard is None:
                self._finish(transactional_id, completion)
            elif shard.transactions.get(transactional_id) is completion.metadata:
                self._try_again(transactional_id, completion, "the completion", response)

        runtime = self._runtime
        runtime.run(
            completion.partition,
            lambda shard: shard.complete(transactional_id, completion.metadata),
            written,
            is_own=True,
        )
        shard = runtime.peek(completion.partition)
        if shard is not None and shard.transactions.get(transactional_id) is not completion.metadata:
            # The record is in the log and replayed: the next decision builds on it, and its response waits until both
            # are committed.
            self._finish(transactional_id, completion)

    def _try_again(self, transactional_id: str, completion: _Completion, what: str, error: KafkaError | None) -> None:
        backoff_ms = completion.backoff_ms
        is_lasting = backoff_ms >= self._config.marker_backoff_max_ms  # leaders that move are nothing to worry about
        level = logging.WARNING if is_lasting else logging.INFO
        self._log.log(level, "Writing %s of %s is tried again in %d ms: %s", what, transactional_id, backoff_ms, error)
        completion.backoff_ms = min(2 * backoff_ms, self._config.marker_backoff_max_ms)
        self._later(transactional_id, completion, backoff_ms)

    def _finish(self, transactional_id: str, completion: _Completion) -> None:
        if self._under_way.get(transactional_id) is completion:
            del self._under_way[transactional_id]
        self._cancel(completion)
        for waiter in tuple(completion.waiters):
            self._wake(completion.waiters, waiter)

    @staticmethod
    def _cancel(completion: _Completion) -> None:
        if completion.handle is not None:
            completion.handle.cancel()
            completion.handle = None

    @staticmethod
    def _wake(waiters: list[_Waiter], waiter: _Waiter) -> None:
        if waiter in waiters:
            waiters.remove(waiter)
            if waiter.handle is not None:
                waiter.handle.cancel()
            waiter.callback()
