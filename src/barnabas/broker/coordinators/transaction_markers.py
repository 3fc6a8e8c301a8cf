"""End markers of transactions on their way into the partitions that this broker leads.

A marker decides the records that its producer has written there: the last stable offset moves, and the pending offsets
on a partition of __consumer_offsets count from then on, or never.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
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
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.server import Broker

__all__ = ["Outcomes", "write_markers"]

_COMMIT_TIMEOUT_S: Final = 30
"""Kafka's request.timeout.ms, which no setting of ours changes yet."""
_NOT_READY: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
"""What a group coordinator says that cannot take a marker now. Transaction coordinators expect a leader's words."""

Outcomes = dict[TopicPartition, KafkaError | None]
"""None: the marker is committed."""


def write_markers(broker: "Broker", marker: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
    """Append the marker to each of its partitions; `reply` is called once, maybe before this returns, when all of them
    have it committed or have failed."""
    _MarkerWrite(broker, marker, reply).start()


class _MarkerWrite:
    """One marker until its reply."""

    def __init__(self, broker: "Broker", marker: EndMarkers, reply: Callable[[Outcomes], None]) -> None:
        self._broker = broker
        self._marker = marker
        self._reply = reply
        self._outcomes: Outcomes = dict.fromkeys(marker.partitions)
        self._pending = 1
        """The parts that are under way: one for all partitions of logs, one for each group coordinator's."""

    def start(self) -> None:
        waiting: list[Uncommitted[TopicPartition]] = []
        for topic_partition in self._outcomes:
            try:
                partition = self._broker.replica_manager.leader_of(*topic_partition)
                if topic_partition.topic == OFFSETS_TOPIC:
                    self._end_pending_offsets(topic_partition)
                    continue
                end_offset = self._append(partition)
            except Exception as error:
                # A bug of ours, too, must not keep the other partitions undecided for ever.
                if isinstance(error, KafkaError):
                    self._failed(topic_partition, error)
                else:
                    what = f"the end marker for {topic_partition}"
                    self._failed(topic_partition, self._broker.failures.report(what, error))
                continue
            if not partition.is_committed(end_offset):
                waiting.append(Uncommitted(partition, end_offset, topic_partition))
        if waiting:
            wait = DelayedProduce(waiting, self._failed, self._part_done)
            self._broker.purgatory.park(wait, None, wait.partitions, _COMMIT_TIMEOUT_S)
        else:
            self._part_done()

    def _append(self, partition: Partition) -> int:
        """The offset behind the marker."""
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
        return info.last_offset + 1

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
        self._part_done()

    def _failed(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        self._outcomes[topic_partition] = error

    def _part_done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._reply(self._outcomes)
