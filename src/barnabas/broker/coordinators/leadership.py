"""What every coordinator is told of the partitions of its internal topic."""

import asyncio
from typing import Protocol

from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import TopicPartition

__all__ = ["Coordinator", "follow_partitions"]


class Coordinator(Protocol):
    """A coordinator as its partitions see it."""

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition from now on."""

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker leads it no more, or its replica is gone."""

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """More of the partition is committed."""


class _CommitWatcher:
    """Tells the coordinator of a partition's high watermark, outside of whatever moved it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coordinator: Coordinator, partition: Partition) -> None:
        self._loop = loop
        self._coordinator = coordinator
        self._partition = partition
        self._scheduled = False

    def partition_changed(self, partition: Partition) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._scheduled = False
        partition = self._partition
        if partition.is_leader:
            self._coordinator.on_high_watermark(partition.topic_partition.partition, partition.log.high_watermark)


def follow_partitions(
    topic: str, coordinator: Coordinator, manager: ReplicaManager, loop: asyncio.AbstractEventLoop
) -> None:
    """From now on the coordinator knows which partitions of its topic this broker leads, and what is committed."""

    def led(partition: Partition) -> None:
        if partition.topic_partition.topic == topic:
            if not any(isinstance(watcher, _CommitWatcher) for watcher in partition.watchers):
                partition.watchers.add(_CommitWatcher(loop, coordinator, partition))
            coordinator.on_elected(partition.topic_partition.partition, partition.leader_epoch)

    def resigned(topic_partition: TopicPartition) -> None:
        if topic_partition.topic == topic:
            coordinator.on_resigned(topic_partition.partition)

    manager.on_leadership.append(led)
    manager.on_resignation.append(resigned)
