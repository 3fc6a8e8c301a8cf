"""Tells the controller which replicas this broker cannot write or read, so that another broker leads and nobody waits.

A full disk refuses appends while the log stays readable; a log that has failed waits for a restart; a damaged one has
records that cannot be read. In all cases the broker leaves the ISR, and the leader's role, of partitions that have
another in-sync replica.

A damaged log is copied anew from the leader, once nothing that this broker has fetched with it counts any more: the
controller has begun a new leader epoch, and the replica is in no list of those that may lead. The log of before stays:
the leader's may lack other records. The operator removes it, and no second copy is begun before, unless the first one
fails. One log is copied at a time, if its leader knows of no damage and the disk has room.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeGuard

from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.broker.peers.peer_connections import PeerConnections
from barnabas.broker.requests.late_responses import run_handler
from barnabas.broker.services import BrokerServices
from barnabas.errors import BarnabasError, KafkaError, KafkaStorageError
from barnabas.log.directories.data_directory import DataDirectory
from barnabas.log.directories.space_reserve import free_bytes
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.image import NO_LEADER, PartitionImage
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.peer_messages.give_up_replicas import GivenUpReplica, GiveUpReplicasRequest
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import replica_position
from barnabas.types import BrokerId, TopicPartition

__all__ = ["StorageFailures"]

AGAIN_S: Final = 1.0
"""A replica that fails all the time is told no more often."""
ASK_AGAIN_S: Final = 60.0
"""The time between two tries to begin a copy."""


class StorageFailures:
    """Used on the event loop's thread."""

    def __init__(
        self,
        broker: BrokerServices,
        controller: ControllerChannel,
        peers: PeerConnections,
        *,
        replicas_changed: Callable[[str], None],
    ) -> None:
        """`replicas_changed` is called with the topic of a replica that begins with another log."""
        self._broker = broker
        self._replicas_changed = replicas_changed
        self._controller = controller
        self._peers = peers
        self._failed: dict[TopicPartition, None] = {}
        self._told: dict[TopicPartition, float] = {}
        self._asked_at = -ASK_AGAIN_S
        self._copying: TopicPartition | None = None
        """The log that is copied anew. One at a time: a copy that cannot be finished puts no other log aside."""
        self._failed_copies: set[UnifiedLog] = set()
        """Copies that could not be finished: another one takes the place of each, and nobody misses it."""
        self._untold_since: float | None = None
        """The time since which the controller could not be told of a failed directory."""
        broker.replica_manager.on_storage_failure.append(self.failed)
        broker.replica_manager.on_leadership.append(self._leads)

    def failed(self, topic_partition: TopicPartition) -> None:
        """Called when the disk refuses to open or to extend a log, or the log is damaged."""
        now = self._broker.loop.time()
        if now - self._told.get(topic_partition, -AGAIN_S) < AGAIN_S:
            return
        self._told[topic_partition] = now
        if not self._failed:
            self._broker.loop.call_soon(lambda: run_handler(self._broker.loop, self._tell()))
        self._failed[topic_partition] = None

    def _leads(self, replica: Partition) -> None:
        """Called with each replica that begins to lead. It may have been known since the start that its log lacks
        records: another one leads if it can."""
        if replica.log.lacks:
            self.failed(replica.topic_partition)

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

    def check_damaged(self) -> None:
        """Looks after the replicas whose logs are damaged: another one may be in sync by now. Called periodically."""
        image = self._broker.image
        self._note_end_of_copy()
        to_copy = []
        for replica in list(self._broker.replica_manager.all()):
            if replica.log.lacks:
                partition = image.partition(*replica.topic_partition)
                if self._is_to_give_up(partition, replica):
                    self.failed(replica.topic_partition)
                elif self._may_copy_anew(partition, replica):
                    to_copy.append(replica)
        now = self._broker.loop.time()
        if to_copy and now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            if self._copying is None:
                run_handler(self._broker.loop, self._copy_first(to_copy))
            else:
                line = f"{to_copy[0].topic_partition} is not copied: {self._copying} is copied first, and not in sync"
                self._broker.failures.warn("copying damaged logs", line)

    def _note_end_of_copy(self) -> None:
        if self._copying is None:
            return
        partition = self._broker.image.partition(*self._copying)
        node_id = self._broker.node_id
        if partition is None or node_id in partition.isr or node_id not in partition.replicas:
            self._copying, self._asked_at = None, -ASK_AGAIN_S
            return
        replica = self._broker.replica_manager.get(*self._copying)
        if replica is not None and (replica.log.lacks or replica.log.offline_reason is not None):
            self._copying = None
            self._failed_copies.add(replica.log)
            replica.log.damage.note(f"the copy has failed: {replica.log.offline_reason or replica.log.lacks}")

    def _is_to_give_up(self, partition: PartitionImage | None, replica: Partition | None) -> TypeGuard[PartitionImage]:
        if replica is None or not replica.log.lacks:
            return self._is_shared(partition)
        if partition is None or set(partition.isr) <= {self._broker.node_id}:
            return False
        return self._is_eligible(partition) or partition.leader_epoch <= replica.damaged_epoch

    def _is_eligible(self, partition: PartitionImage) -> bool:
        return self._broker.node_id in (*partition.isr, *partition.elr, *partition.last_known_elr)

    def _may_copy_anew(self, partition: PartitionImage | None, replica: Partition) -> bool:
        """Returns whether others are in sync, and nobody counts on what this replica had."""
        if partition is None or replica.is_leader or replica.leader_epoch <= replica.damaged_epoch:
            return False
        if partition.leader_epoch != replica.leader_epoch or partition.leader in (NO_LEADER, self._broker.node_id):
            return False
        return not self._is_eligible(partition)

    async def _copy_first(self, replicas: Sequence[Partition]) -> None:
        """Begins to copy the first of these logs that can be copied."""
        for replica in replicas:
            topic_partition = replica.topic_partition
            try:
                why_not = await self._copy_anew(replica)
            except (BarnabasError, OSError) as error:
                why_not = str(error)
            if self._copying is not None:
                return
            if why_not:
                self._broker.failures.warn("copying damaged logs", f"{topic_partition} is not copied: {why_not}")

    async def _copy_anew(self, replica: Partition) -> str:
        """Begins to copy a log anew. Returns why it cannot be. Raises BarnabasError, OSError."""
        broker, topic_partition = self._broker, replica.topic_partition
        logs = broker.log_manager
        is_copy = replica.log in self._failed_copies
        aside = logs.aside(topic_partition)
        if aside and not is_copy:
            return f"{aside} is of an earlier copy: look at the disk, and remove it if nobody misses its records"
        size, damage = await self._leaders_log(topic_partition, replica.leader_id)
        if damage:
            return f"the log of its leader, broker {replica.leader_id}, is damaged as well: {damage}"
        partition = broker.image.partition(*topic_partition)
        current = broker.replica_manager.get(*topic_partition)
        if partition is None or current is not replica or not self._may_copy_anew(partition, replica):
            return ""
        if self._copying is not None:
            return ""
        room = max(size, replica.log.size_bytes) + broker.config.log_dir_reserve_bytes
        position = replica_position(partition, broker.node_id)
        directory = logs.choose_directory(topic_partition, position, room=room, anew=True)
        if free_bytes(directory.path) < room:
            return f"{directory.path} has not the {room} bytes that are needed: make room there"
        logs.prefer(*topic_partition, directory)
        self._copying = topic_partition
        try:
            kept = broker.replica_manager.copy_anew(topic_partition, keep=not is_copy)
        except KafkaError:
            self._copying = None
            raise
        self._failed_copies.discard(replica.log)
        broker.log.warning(
            "%s is copied anew from its leader; the damaged log is kept as %s: remove it when the copy is in sync and "
            "nobody misses records",
            topic_partition,
            kept or aside,
        )
        self._replicas_changed(topic_partition.topic)
        return ""

    async def _leaders_log(self, topic_partition: TopicPartition, leader_id: BrokerId) -> tuple[int, str]:
        """Returns the size of the leader's log, and what that is known to lack. Raises BarnabasError."""
        topic = DescribableLogDirTopic(topic=topic_partition.topic, partitions=[topic_partition.partition])
        response = await self._peers.send(leader_id, DescribeLogDirsRequest(topics=[topic]))
        for directory in response.results:
            for described in directory.topics:
                for each in described.partitions:
                    if not each.is_future_key:
                        return each.partition_size, each.damage or ""
        raise KafkaStorageError(f"broker {leader_id} does not tell what it has of {topic_partition}")

    async def _tell(self) -> None:
        failed, self._failed = self._failed, {}
        broker, image = self._broker, self._broker.image
        registered = image.brokers.get(broker.node_id)
        replicas = []
        for name, index in failed:
            partition, replica = image.partition(name, index), broker.replica_manager.get(name, index)
            if self._is_to_give_up(partition, replica):
                topic_id = image.topics[name].topic_id
                is_damaged = replica is not None and bool(replica.log.lacks)
                replicas.append(
                    GivenUpReplica(
                        topic_id=topic_id,
                        partition=index,
                        leader_epoch=partition.leader_epoch,
                        is_damaged=is_damaged,
                    )
                )
        if registered is None or not replicas:
            self._untold_since = None
            return
        request = GiveUpReplicasRequest(broker_id=broker.node_id, broker_epoch=registered.epoch, replicas=replicas)
        try:
            await self._controller.send(request)
            self._untold_since = None
        except BarnabasError as error:
            broker.log.info("the controller has not heard of replicas that cannot be written or read: %s", error)
            self._end_if_untold()
            broker.loop.call_later(AGAIN_S, self._failed_still, list(failed))

    def _end_if_untold(self) -> None:
        """Ends the broker after log.dir.failure.timeout.ms, so that the controller notices without being told. Not as
        long as it serves anything: where the registry is away, nobody could be elected in its place."""
        if any(each.log.offline_reason is None for each in self._broker.replica_manager.all()):
            self._untold_since = None
            return
        now, allowed_ms = self._broker.loop.time(), self._broker.config.log_dir_failure_timeout_ms
        if self._untold_since is None:
            self._untold_since = now
        elif now - self._untold_since >= allowed_ms / 1000:
            self._broker.end(f"the controller could not be told for {allowed_ms} ms that a data directory has failed")

    def _failed_still(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self.failed(topic_partition)
