"""The transaction coordinator's interface to the broker: methods take requests and reply by callback.

A transactional id lives on one partition of __transaction_state, by Java's hash of it, and the partition's leader
coordinates it. Every method here finds the partition, runs the operation there, and turns errors into those that
clients of the API understand. A reply comes exactly once, maybe before the method returns.

Where we differ from Kafka: what ends a producer or its transaction, and changes nothing, is said once a record is
committed, so that a coordinator that others have replaced cannot say it. Below min.insync.replicas producers retry.
"""

from __future__ import annotations  # annotations of nested functions would be evaluated at every call

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.coordinator.coordinator_runtime import CoordinatorLog, CoordinatorRuntime, Reply, Scheduler
from barnabas.coordinator.coordinator_shard import CoordinatorResult, CoordinatorTimer
from barnabas.coordinator.responses import each, for_client, joined
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.end_txn import EndTransaction
from barnabas.coordinator.transaction.init_producer_id import InitProducerId, NewProducerId
from barnabas.coordinator.transaction.records import CODEC, ID_BYTES_MAX, TransactionRecord
from barnabas.coordinator.transaction.transaction_coordinator_shard import (
    Errors,
    InitProducerIdResult,
    TransactionCoordinatorShard,
)
from barnabas.coordinator.transaction.transaction_marker_channel_manager import (
    MarkerChannel,
    TransactionMarkerChannelManager,
)
from barnabas.coordinator.transaction.transaction_metadata import NO_TIMEOUT, TV2, TransactionMetadata
from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
)
from barnabas.metadata.partitioning import partition_for
from barnabas.types import LeaderEpoch, Offset, ProducerId, TopicPartition

__all__ = ["TRANSACTION_STATE_TOPIC", "TransactionCoordinator"]

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"

T = TypeVar("T")


class TransactionCoordinator:
    """Coordinates all transactional ids whose partition this broker leads."""

    def __init__(
        self,
        *,
        config: TransactionConfig,
        log: CoordinatorLog,
        scheduler: Scheduler,
        wall_ms: Callable[[], int],
        partition_count: Callable[[], int],
        new_producer_id: NewProducerId,
        send_markers: MarkerChannel,
        later: Callable[[Callable[[], None]], object] | None = None,
        may_be_replaced: Callable[[], bool] = lambda: False,
        logger: logging.Logger | None = None,
    ) -> None:
        """`partition_count()` returns the partitions of __transaction_state. `new_producer_id()` may raise KafkaError.
        `later` calls back when the next part of a long request may run. The runtime explains `may_be_replaced`."""
        self.config = config
        self._later = later or partial(scheduler.call_later, 0.0)
        self._partition_count = partition_count
        self._wall_ms = wall_ms
        self._new_producer_id = new_producer_id
        self._logger = logger or logging.getLogger(__name__)
        self._epochs: dict[int, int] = {}
        """The leader epochs by partition. End markers have them, so that those of an older coordinator are refused."""
        self.runtime: CoordinatorRuntime[TransactionCoordinatorShard, TransactionRecord] = CoordinatorRuntime(
            topic=TRANSACTION_STATE_TOPIC,
            log=log,
            serde=CODEC,
            make_shard=self._make_shard,
            scheduler=scheduler,
            wall_ms=wall_ms,
            commit_timeout_ms=config.commit_timeout_ms,
            may_be_replaced=may_be_replaced,
            logger=self._logger,
        )
        self._completions = TransactionMarkerChannelManager(config, scheduler, send_markers, self.runtime, self._logger)

    def _make_shard(self, partition: int, timers: CoordinatorTimer) -> TransactionCoordinatorShard:
        epoch = self._epochs[partition]
        return TransactionCoordinatorShard(
            self.config,
            timers,
            self._wall_ms,
            self._new_producer_id,
            lambda transactional_id, metadata: self._completions.begin(partition, epoch, transactional_id, metadata),
            self._logger,
        )

    # --- leadership ---------------------------------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """Loads a partition of __transaction_state, because this broker leads it now."""
        if leader_epoch > self._epochs.get(partition, -1):
            self._epochs[partition] = leader_epoch
            self._completions.drop(partition)
        self.runtime.load(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """Unloads a partition, because this broker no longer leads it or its replica is deleted."""
        self.runtime.unload(partition, leader_epoch)
        if partition not in self.runtime.partitions():
            self._epochs.pop(partition, None)
            self._completions.drop(partition)

    def on_high_watermark(self, partition: int, high_watermark: Offset) -> None:
        """Sends the responses that the new high watermark of a partition covers."""
        self.runtime.on_high_watermark(partition, high_watermark)

    def leaders_changed(self) -> None:
        """Sends failed end markers again at once, because partitions may have other leaders now."""
        self._completions.leaders_changed()

    def shutdown(self) -> None:
        """Fails all waiting requests with NOT_COORDINATOR, because the broker shuts down."""
        self.runtime.close()
        self._completions.close()

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self._partition_count())

    # --- periodic work ------------------------------------------------------------------------------------------------

    def expire_transactional_ids(self) -> None:
        """Removes transactional ids that have not been used for long. Called every
        transaction.remove.expired.transaction.cleanup.interval.ms."""
        for partition in self.runtime.used_partitions():
            if self.runtime.is_active(partition):
                self.runtime.run(partition, lambda shard: shard.expire(), self._log_failure, is_own=True)

    def _log_failure(self, response: object) -> None:
        if isinstance(response, KafkaError):
            self._logger.warning("Expired transactional ids could not be removed: %s", response)

    # --- requests of producers ----------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: tuple[ProducerId, int] | None = None,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
        reply: Reply[InitProducerIdResult],
    ) -> None:
        """Handles InitProducerId of a transactional producer. `expected` is its former producer id and epoch."""
        try:
            self._check_initialisation(transactional_id, timeout_ms, two_phase_commit)
        except KafkaError as error:
            reply(error)
            return
        request = InitProducerId(
            transactional_id, NO_TIMEOUT if two_phase_commit else timeout_ms, expected, keep_prepared
        )
        self._run(transactional_id, lambda shard: shard.init_producer_id(request), reply)

    def _check_initialisation(self, transactional_id: str, timeout_ms: int, two_phase_commit: bool) -> None:
        if not transactional_id:
            raise InvalidRequest("an empty transactional id")
        if len(transactional_id.encode()) > ID_BYTES_MAX:
            raise InvalidRequest(f"a transactional id of more than {ID_BYTES_MAX} bytes")
        if two_phase_commit:
            if not self.config.two_phase_commit_enable:
                raise TransactionalIdAuthorizationFailed("transaction.two.phase.commit.enable is false on this broker")
        elif not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms {timeout_ms} is not within 1 and transaction.max.timeout.ms, "
                f"{self.config.max_timeout_ms}"
            )

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        *,
        transaction_version: int,
        waits: bool = True,
        reply: Reply[None],
    ) -> None:
        """Handles AddPartitionsToTxn and AddOffsetsToTxn: adds all partitions to the transaction, or none.

        Kafka lets the client retry while the end markers of its last transaction are being written; here the request
        waits for them, for add.partitions.to.txn.retry.backoff.max.ms at most. Without `waits` it waits neither for
        them nor for the load of the partition.
        """
        if not transactional_id:
            reply(InvalidRequest("an empty transactional id"))
            return

        def add(shard: TransactionCoordinatorShard) -> CoordinatorResult[TransactionRecord, None]:
            return shard.add_partitions(transactional_id, producer, partitions, transaction_version)

        def added(response: KafkaError | None) -> None:
            must_wait = waits and isinstance(response, ConcurrentTransactions)
            if not must_wait or not self._completions.wait(transactional_id, again):
                reply(response)

        def again() -> None:
            self._run(transactional_id, add, reply)

        self._run(transactional_id, add, added, waits=waits)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        *,
        waits: bool = True,
        reply: Reply[Errors],
    ) -> None:
        """Handles AddPartitionsToTxn with VerifyOnly: returns which partitions are in the ongoing transaction. `waits`
        says that the request waits for the load of the partition."""
        if not transactional_id:
            reply(InvalidRequest("an empty transactional id"))
            return
        self._run(
            transactional_id,
            lambda shard: shard.verify_partitions(transactional_id, producer, partitions),
            reply,
            waits=waits,
        )

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        reply: Callable[[Errors], None],
    ) -> None:
        """Verifies partitions of a transaction for their leader, or adds them to it (KIP-890).

        With `verify_only` a partition that is not in the ongoing transaction gets TransactionAbortable; without it the
        partitions join the transaction, as the records of clients with transaction.version 2 imply. ProducerFenced
        becomes InvalidProducerEpoch, which producers expect in Produce responses.
        """

        def answer(response: Errors | KafkaError | None) -> None:
            if isinstance(response, ProducerFenced):
                response = InvalidProducerEpoch(response.message)
            if response is None or isinstance(response, KafkaError):
                response = dict.fromkeys(partitions, response)
            reply(response)

        producer = (producer_id, producer_epoch)
        if verify_only:
            self.verify_partitions(transactional_id, producer, partitions, reply=answer)
        else:
            self.add_partitions(transactional_id, producer, partitions, transaction_version=TV2, reply=answer)

    def end_transaction(self, request: EndTransaction, *, reply: Reply[tuple[int, int]]) -> None:
        """Handles EndTxn. The reply, the producer id and epoch to continue with, comes when the outcome is committed to
        the log. The end markers follow it."""
        if not request.transactional_id:
            reply(InvalidRequest("an empty transactional id"))
            return
        self._run(request.transactional_id, lambda shard: shard.end(request), reply)

    # --- administration -----------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str, *, reply: Reply[TransactionMetadata]) -> None:
        """Returns the state of a transactional id; of a prepared transaction only the partitions without an end
        marker."""
        if not transactional_id:
            reply(InvalidRequest("an empty transactional id"))
            return

        def look(shard: TransactionCoordinatorShard) -> CoordinatorResult[Any, TransactionMetadata]:
            metadata = shard.find(transactional_id)
            left = frozenset(self._completions.without_marker(transactional_id, metadata))
            return CoordinatorResult(response=metadata._replace(partitions=left))

        self._run(transactional_id, look, reply)

    def list_transactions(
        self,
        wanted: Callable[[str, TransactionMetadata, int], bool],
        *,
        reply: Reply[list[tuple[str, TransactionMetadata]]],
    ) -> None:
        """Returns the transactional ids of this broker for which `wanted` (id, metadata, now in ms) is true. Waits for
        partitions that are loading, and replies CoordinatorLoadInProgress if that takes too long."""
        Listed = list[tuple[str, TransactionMetadata]]

        def one(partition: int, done: Callable[[Listed | KafkaError], None]) -> None:
            self.runtime.run(partition, lambda shard: CoordinatorResult(response=shard.listed(wanted)), done)

        each(self.runtime.used_partitions(), one, lambda parts: reply(joined(parts)), self._later)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _run(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinatorShard], CoordinatorResult[Any, Any]],
        reply: Reply[Any],
        *,
        waits: bool = True,
    ) -> None:
        def deliver(response: Any) -> None:
            reply(for_client(response) if isinstance(response, KafkaError) else response)

        def run(shard: TransactionCoordinatorShard) -> CoordinatorResult[Any, Any]:
            try:
                return operation(shard)
            except (InvalidProducerIdMapping, InvalidTxnState, ProducerFenced) as refusal:
                if len(transactional_id.encode()) > ID_BYTES_MAX:
                    raise  # nobody can have it, and no record could tell
                return shard.confirmed(transactional_id, refusal)

        self.runtime.run(self.partition_for(transactional_id), run, deliver, waits=waits)
