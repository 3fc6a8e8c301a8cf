"""Tells the controller which replicas this broker cannot write, so that another broker leads and nobody waits for it.

A full disk refuses appends while the log stays readable; a log that has failed waits for a restart. In both cases the
broker leaves the ISR, and the leader's role, of partitions that have another in-sync replica.
"""

from collections.abc import Iterable
from typing import Final, TypeGuard

from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.services import BrokerServices
from barnabas.errors import BarnabasError
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.metadata.image import PartitionImage
from barnabas.protocol.peer_messages.give_up_replicas import GivenUpReplica, GiveUpReplicasRequest
from barnabas.types import TopicPartition

__all__ = ["StorageFailures"]

AGAIN_S: Final = 1.0
"""A replica that fails all the time is told no more often."""


class StorageFailures:
    """Used on the event loop's thread."""

    def __init__(self, broker: BrokerServices, controller: ControllerChannel) -> None:
        self._broker = broker
        self._controller = controller
        self._failed: dict[TopicPartition, None] = {}
        self._told: dict[TopicPartition, float] = {}
        broker.replica_manager.on_storage_failure.append(self.failed)

    def failed(self, topic_partition: TopicPartition) -> None:
        """Called when the disk refuses to open or to extend a log."""
        now = self._broker.loop.time()
        if now - self._told.get(topic_partition, -AGAIN_S) < AGAIN_S:
            return
        self._told[topic_partition] = now
        if not self._failed:
            self._broker.loop.call_soon(lambda: run_handler(self._broker.loop, self._tell()))
        self._failed[topic_partition] = None

    def check_directories(self) -> None:
        """Looks for data directories that have failed as a whole. Blocks; called periodically in a thread."""
        for directory in self._broker.log_manager.directories:
            error = directory.failure()
            if error is not None:
                self._broker.loop.call_soon_threadsafe(self._directory_failed, directory, error)

    def _directory_failed(self, directory: DataDirectory, error: OSError) -> None:
        """Gives up the replicas in a directory, those that nobody writes at present included. Those that no other
        broker has stay: they may still be readable."""
        logs = self._broker.log_manager
        for replica in list(self._broker.replica_manager.all()):
            topic_partition = replica.topic_partition
            if logs.directory_of(topic_partition) is directory and self._is_shared(
                self._broker.image.partition(*topic_partition)
            ):
                if replica.log.offline_reason is None:
                    # A follower asks for no more then, so the leader does not wait for it.
                    replica.take_offline(f"{directory.path}: {error.strerror}")
                self.failed(topic_partition)

    def _is_shared(self, partition: PartitionImage | None) -> TypeGuard[PartitionImage]:
        """Returns whether this broker and another one are in sync."""
        return partition is not None and self._broker.node_id in partition.isr and len(partition.isr) > 1

    async def _tell(self) -> None:
        failed, self._failed = self._failed, {}
        broker, image = self._broker, self._broker.image
        registered = image.brokers.get(broker.node_id)
        replicas = []
        for name, index in failed:
            partition = image.partition(name, index)
            if self._is_shared(partition):
                topic_id = image.topics[name].topic_id
                replicas.append(GivenUpReplica(topic_id=topic_id, partition=index, leader_epoch=partition.leader_epoch))
        if registered is None or not replicas:
            return
        request = GiveUpReplicasRequest(broker_id=broker.node_id, broker_epoch=registered.epoch, replicas=replicas)
        try:
            await self._controller.send(request)
        except BarnabasError as error:
            broker.log.info("the controller has not heard of replicas that cannot be written: %s", error)
            broker.loop.call_later(AGAIN_S, self._failed_still, list(failed))

    def _failed_still(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self.failed(topic_partition)
