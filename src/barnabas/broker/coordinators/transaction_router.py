"""Finds the coordinator of a transactional id for the leaders of its partitions: on this broker or on another one."""

from __future__ import annotations  # the type of a module that a broker alone must not import

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.services import BrokerServices
from barnabas.coordinator.event_loop import EventLoopScheduler
from barnabas.errors import CoordinatorNotAvailable, KafkaError
from barnabas.late_imports import import_late
from barnabas.metadata.image import NO_LEADER, TRANSACTION_STATE
from barnabas.types import BrokerId, ProducerId, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.cluster.remote_verification import RemoteVerification

__all__ = ["TransactionRouter"]


class TransactionRouter:
    """Passes questions about transactions to their coordinator."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._remote: RemoteVerification | None = None

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        reply: Callable[[dict[TopicPartition, KafkaError | None]], None],
    ) -> None:
        """Does what `TransactionCoordinator.verify_or_add` does, wherever the coordinator is. The reply may also have
        NetworkException, if another broker has not answered."""
        broker = self._broker
        coordinator_id = broker.node_id if broker.peers is None else self._coordinator_id(transactional_id)
        if coordinator_id == broker.node_id:
            broker.transactions.verify_or_add(
                transactional_id, producer_id, producer_epoch, partitions, verify_only=verify_only, reply=reply
            )
            return
        if coordinator_id == NO_LEADER:
            error = CoordinatorNotAvailable(f"{transactional_id} has no live coordinator")
            reply(dict.fromkeys(partitions, error))
            return
        try:
            remote = self._made_remote()
        except OSError as refusal:  # neither memory nor a descriptor for its code
            error = CoordinatorNotAvailable(f"broker {coordinator_id} cannot be asked: {refusal}")
            reply(dict.fromkeys(partitions, error))
            return
        remote.verify_or_add(
            coordinator_id,
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            verify_only=verify_only,
            reply=reply,
        )

    def _coordinator_id(self, transactional_id: str) -> BrokerId:
        """Returns the leader of the partition to which the transactional id belongs, if it is active."""
        broker = self._broker
        found = broker.image.partition(TRANSACTION_STATE, broker.transactions.partition_for(transactional_id))
        if found is None:
            return NO_LEADER
        return found.leader if found.leader == broker.node_id or broker.image.is_active(found.leader) else NO_LEADER

    def _made_remote(self) -> RemoteVerification:
        if self._remote is None:
            broker, made = self._broker, import_late("barnabas.broker.cluster.remote_verification").RemoteVerification
            self._remote = made(
                lambda: broker.peers,
                EventLoopScheduler(broker.loop),
                broker.failures,
                lambda: broker.config.add_partitions_to_txn_retry_backoff_max_ms,
            )
        return self._remote

    def brokers_changed(self) -> None:
        """Fails the questions to brokers that are not active any more."""
        if self._remote is not None:
            self._remote.brokers_changed(self._broker.image.is_active)
