"""Notifies a coordinator of the partitions of its internal topic that this broker leads."""

import asyncio
from typing import Protocol

from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import LeaderEpoch, Offset, TopicPartition

__all__ = ["PartitionListener", "listen_to_partitions"]


class PartitionListener(Protocol):
    """A coordinator as the replica manager sees it."""

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """This broker has become the leader of the partition."""

    def on_resigned(self, partition: int, leader_epoch: LeaderEpoch | None = None) -> None:
        """This broker is no longer the leader of the partition, or its replica is deleted."""

    def on_high_watermark(self, partition: int, high_watermark: Offset) -> None:
        """The partition's high watermark has moved."""


class _HighWatermarkWatcher:
    """Calls the coordinator from the event loop after a partition's high watermark has moved."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coordinator: PartitionListener, partition: Partition) -> None:
        self._loop = loop
        self._coordinator = coordinator
        self._partition = partition
        self._scheduled = False

    def partition_changed(self, partition: Partition) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._notify)

    def _notify(self) -> None:
        self._scheduled = False
        partition = self._partition
        if partition.is_leader:
            self._coordinator.on_high_watermark(partition.topic_partition.partition, partition.log.high_watermark)


def listen_to_partitions(
    topic: str, coordinator: PartitionListener, manager: ReplicaManager, loop: asyncio.AbstractEventLoop
) -> None:
    """Subscribes the coordinator to elections, resignations and high watermarks of the topic's partitions."""

    def on_leadership(partition: Partition) -> None:
        if partition.topic_partition.topic == topic:
            if not any(isinstance(watcher, _HighWatermarkWatcher) for watcher in partition.watchers):
                partition.watchers[_HighWatermarkWatcher(loop, coordinator, partition)] = None
            coordinator.on_elected(partition.topic_partition.partition, partition.leader_epoch)

    def on_resignation(topic_partition: TopicPartition) -> None:
        if topic_partition.topic == topic:
            coordinator.on_resigned(topic_partition.partition)

    manager.on_leadership.append(on_leadership)
    manager.on_resignation.append(on_resignation)
