"""Appends end markers of transactions to the partitions that this broker leads.

A marker commits or aborts the records that its producer has written to the partition: the last stable offset moves. On
a partition of __consumer_offsets it also commits or drops the pending offsets of the transaction.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
from barnabas.broker.services import BrokerServices
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.transaction_marker_channel_manager import EndMarkers
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from barnabas.records.builder import build_control_batch
from barnabas.records.validation import own_batch
from barnabas.replication.partition import Partition
from barnabas.types import Offset, TopicPartition

__all__ = ["Outcomes", "write_markers"]

_NOT_READY: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
"""Errors of a group coordinator that cannot take a marker now. Transaction coordinators expect a leader's error."""

Outcomes = dict[TopicPartition, KafkaError | None]
"""The error of each partition; None if the marker is committed."""


def write_markers(broker: BrokerServices, marker: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
    """Appends the marker to each of its partitions.

    Calls `reply` once, maybe before this returns, when the marker is committed or has failed in every partition.
    """
    _MarkerWrite(broker, marker, reply).start()


class _MarkerWrite:
    def __init__(self, broker: BrokerServices, marker: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
        self._broker = broker
        self._marker = marker
        self._reply = reply
        self._outcomes: Outcomes = dict.fromkeys(marker.partitions)
        self._pending = 1
        """Steps that are not done: one for the markers in logs, one for each partition of the group coordinator."""

    def start(self) -> None:
        waiting: list[Uncommitted[TopicPartition]] = []
        for topic_partition in self._outcomes:
            try:
                partition = self._broker.replica_manager.leader_of(*topic_partition)
                if topic_partition.topic == OFFSETS_TOPIC:
                    self._end_pending_offsets(topic_partition)
                    continue
                last_offset = self._append(partition)
            except Exception as error:
                # A bug must not keep the other partitions of the transaction open for ever.
                if isinstance(error, KafkaError):
                    self._failed(topic_partition, error)
                else:
                    failure = self._broker.failures.report(f"the end marker for {topic_partition}", error)
                    self._failed(topic_partition, failure)
                continue
            if not partition.is_committed(last_offset):
                waiting.append(Uncommitted(partition, last_offset, topic_partition))
        if waiting:
            wait = DelayedProduce(waiting, self._failed, self._step_done)
            self._broker.purgatory.delay(wait, None, wait.partitions, self._broker.config.request_timeout_ms / 1000)
        else:
            self._step_done()

    def _append(self, partition: Partition) -> Offset:
        marker = self._marker
        batch = build_control_batch(
            committed=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._broker.clock.wall_ms(),
        )
        info = partition.append_as_leader(
            own_batch(batch), -1, origin="coordinator", transaction_version=marker.transaction_version
        )
        return info.last_offset

    def _end_pending_offsets(self, topic_partition: TopicPartition) -> None:
        self._pending += 1
        marker = self._marker
        self._broker.groups.end_transaction(
            topic_partition.partition,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            reply=partial(self._offsets_ended, topic_partition),
        )

    def _offsets_ended(self, topic_partition: TopicPartition, error: KafkaError | None) -> None:
        if error is not None:
            if isinstance(error, _NOT_READY):
                error = NotLeaderOrFollower(error.message)
            self._failed(topic_partition, error)
        self._step_done()

    def _failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        self._outcomes[topic_partition] = error

    def _step_done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._reply(self._outcomes)
