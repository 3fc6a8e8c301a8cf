"""Holds the partitions that have a replica on this broker, and updates them from metadata images.

A partition takes the role that an image gives it at once: no other broker may lead in its place while this one believes
that it does. Logs that an image wants made or deleted wait for the disk, so of many only the first come at once. The
others follow one by one, each as the image of that time says, and the event loop serves others in between.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from barnabas.replication.partition import Partition
from barnabas.replication.replica import IsrChange
from barnabas.replication.replication_quotas import ReplicationQuotas
from barnabas.types import BrokerId, Offset, TopicPartition

__all__ = ["ReplicaManager", "replica_position"]

AT_ONCE_MAX: Final = 100
"""The number of logs that an image has made or deleted at once, which takes some 50 ms. Clients of a new topic of usual
size need not ask again."""


def replica_position(assigned: PartitionImage, broker_id: BrokerId) -> int | None:
    """Returns the place of a broker, from 0, among the replicas that a partition is to have; None without others.

    One that takes another's place has that number. Where replicas are only added, those that are there come first,
    though others may be preferred.
    """
    adding, removing = assigned.adding_replicas, assigned.removing_replicas
    replicas = [replica for replica in assigned.replicas if replica not in removing]
    if not removing:
        replicas.sort(key=lambda replica: replica in adding)
    if broker_id not in replicas or len(replicas) == 1:
        return None
    return replicas.index(broker_id)


class ReplicaManager:
    """Owns the partitions; the log manager owns their logs."""

    def __init__(
        self,
        broker_id: BrokerId,
        log_manager: LogManager,
        log_config_of: Callable[[str], LogConfig],
        log: logging.Logger,
        *,
        replica_lag_time_max_ms: int = 30_000,
        flush_behind: Callable[[Partition], None] | None = None,
        quotas: ReplicationQuotas | None = None,
        later: Callable[[Callable[[], object]], None] | None = None,
    ) -> None:
        """`log_config_of` returns the settings of a topic by its name. Partition explains `flush_behind`. `quotas`
        throttle replicas, if they are given. `later` calls a function soon, in rotation with other work; without it an
        image has all its logs made and deleted at once."""
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._log_config_of = log_config_of
        self._log = log
        self._replica_lag_time_max_ms = replica_lag_time_max_ms
        self._flush_behind = flush_behind
        self._quotas = quotas
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._names: dict[UUID, str] = {}
        self._undeleted: set[TopicPartition] = set()
        """The logs of former replicas that the disk has not let go."""
        self._refused: set[str] = set()
        """The topics with a log that the disk has refused."""
        self._later = later
        self._at_once = 0
        """The number of logs that may still be made or deleted at once."""
        self._to_open: dict[TopicPartition, None] = {}
        """The replicas whose logs are made later."""
        self._to_delete: dict[TopicPartition, None] = {}
        """The logs of replicas that are gone, which are deleted later."""
        self._works_later = False
        self.image: MetadataImage | None = None
        self.on_opened: list[Callable[[Partition], None]] = []
        """Called with each replica whose log was made later than the image said."""
        self.on_deletion: list[Callable[[], None]] = []
        """Called when a log was deleted later than the image said."""
        self.on_leadership: list[Callable[[Partition], None]] = []
        """Called with each partition that this broker leads now, or leads in a new leader epoch."""
        self.on_resignation: list[Callable[[TopicPartition], None]] = []
        """Called with each partition that this broker no longer leads."""
        self.on_storage_failure: list[Callable[[TopicPartition], None]] = []
        """Called with each replica that the disk refuses to open or to extend, or whose log is damaged."""
        self.on_suspicion: list[Callable[[Partition, Offset], None]] = []
        """Called with each replica whose readers seem not to be able to use the batch at an offset."""

    # --- finding ----------------------------------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int) -> Partition:
        """Returns the partition if this broker leads it. Raises UnknownTopicOrPartition, NotLeaderOrFollower, or
        KafkaStorageError if the disk has refused the log."""
        found = self._partitions.get((topic, partition))
        if found is not None and found.is_leader:
            return found
        raise self._why_not(topic, partition)

    def replica_of(self, topic: str, partition: int) -> Partition:
        """Returns the partition if this broker has a replica of it. Raises what `leader_of` raises."""
        found = self._partitions.get((topic, partition))
        if found is not None:
            return found
        raise self._why_not(topic, partition)

    def _why_not(self, topic: str, partition: int) -> KafkaError:
        known = self.image.topics.get(topic) if self.image is not None else None
        if known is None or not 0 <= partition < len(known.partitions):
            return UnknownTopicOrPartition(f"{topic}-{partition} does not exist")
        if topic in self._refused and (topic, partition) not in self._partitions:
            return KafkaStorageError(f"the log of {topic}-{partition} could not be opened")
        return NotLeaderOrFollower(f"broker {self._broker_id} does not lead {topic}-{partition}")

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def all(self) -> Iterable[Partition]:
        return self._partitions.values()

    # --- following the metadata -------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage, changed: Iterable[str] | None = None) -> None:
        """Updates partitions and logs from an image. `changed` names the topics that differ; None means all.

        A log that the disk refuses is reported and does not keep the others from it: see `open_refused`.
        """
        previous = self.image
        self.image = image
        self._at_once = AT_ONCE_MAX
        names = set(changed) if changed is not None else set(image.topics) | set(previous.topics if previous else ())
        for name in sorted(names):
            before = previous.topics.get(name) if previous is not None else None
            now = image.topics.get(name)
            if before is not None and (now is None or now.topic_id != before.topic_id):
                self._drop(before)
            if now is not None and (before is None or now is not before):
                self._take(now)

    def brokers_changed(self) -> None:
        """Has the leaders look which replicas they wait for: one that was to join an ISR may be fenced."""
        for partition in self._partitions.values():
            partition.brokers_changed()

    def _drop(self, topic: TopicImage) -> None:
        self._names.pop(topic.topic_id, None)
        for index in range(len(topic.partitions)):
            if (topic.name, index) in self._partitions:
                self._delete(self._partitions[topic.name, index])

    def _delete(self, partition: Partition) -> None:
        """Deletes the replica with its log."""
        topic_partition = partition.topic_partition
        del self._partitions[topic_partition]
        if partition.is_leader:
            for callback in self.on_resignation:
                callback(topic_partition)
        partition.retire()
        if self._is_at_once():
            self._delete_log(topic_partition)
        else:
            self._to_delete[topic_partition] = None
            self._work_later()

    def _delete_log(self, topic_partition: TopicPartition) -> None:
        try:
            self._log_manager.delete(topic_partition)
            self._undeleted.discard(topic_partition)
        except KafkaStorageError as error:
            if topic_partition not in self._undeleted:
                self._undeleted.add(topic_partition)
                self._log.error("%s; tried again", error)

    def _take(self, topic: TopicImage) -> None:
        self._names[topic.topic_id] = topic.name
        config: LogConfig | None = None
        may_lead = self._may_lead()
        put_off: list[TopicPartition] = []
        for index, assigned in enumerate(topic.partitions):
            partition = self._partitions.get((topic.name, index))
            if self._broker_id not in assigned.replicas:
                if partition is not None and assigned.partition_epoch > partition.partition_epoch:
                    self._delete(partition)
                continue
            if partition is None:
                topic_partition = TopicPartition(topic.name, index)
                if topic_partition in self._to_open:
                    continue
                if not self._has_log(topic_partition, topic.topic_id) and not self._is_at_once():
                    put_off.append(topic_partition)
                    continue
                config = config or self._log_config_of(topic.name)
                partition = self._try_to_open(topic_partition, topic.topic_id, config, assigned)
            if partition is not None:
                self._become(partition, assigned, may_lead)
        put_off.sort(key=lambda each: topic.partitions[each.partition].leader != self._broker_id)
        self._to_open.update(dict.fromkeys(put_off))  # leaders first: clients and followers wait for them
        self._work_later()

    def _become(self, partition: Partition, assigned: PartitionImage, may_lead: bool) -> None:
        led, epoch = partition.is_leader, partition.leader_epoch
        partition.become(
            broker_id=self._broker_id,
            leader_id=assigned.leader if may_lead or assigned.leader != self._broker_id else NO_LEADER,
            leader_epoch=assigned.leader_epoch,
            partition_epoch=assigned.partition_epoch,
            replicas=assigned.replicas,
            in_sync_replicas=assigned.isr,
            adding_replicas=assigned.adding_replicas,
        )
        if partition.is_leader and (not led or partition.leader_epoch != epoch):
            for callback in self.on_leadership:
                callback(partition)
        elif led and not partition.is_leader:
            for resigned in self.on_resignation:
                resigned(partition.topic_partition)

    def _may_lead(self) -> bool:
        """Returns whether the controller has taken in this broker. Before that it leads nothing: after a restart it
        would lead in a leader epoch in which it may have had other records."""
        broker = self.image.brokers.get(self._broker_id) if self.image is not None else None
        return broker is None or not broker.fenced

    def open_refused(self) -> None:
        """Tries again to open the logs that the disk has refused, and to delete those that it has kept. Called
        periodically."""
        refused, self._refused = self._refused, set()
        self._at_once = AT_ONCE_MAX
        for topic_partition in sorted(self._undeleted):
            if self._is_at_once():
                self._delete_log(topic_partition)
            else:
                self._to_delete[topic_partition] = None
        self._work_later()
        for name in refused:
            topic = self.image.topics.get(name) if self.image is not None else None
            if topic is not None:
                self._take(topic)

    def copy_anew(self, topic_partition: TopicPartition, *, keep: bool = True) -> str:
        """Puts the log of a follower aside, or deletes it, and begins an empty one, which the follower copies from its
        leader. Returns the directory of the former one if that is kept. Raises KafkaStorageError."""
        aside = self._log_manager.put_aside(topic_partition) if keep else ""
        if not keep:
            self._log_manager.delete(topic_partition)
        self._partitions.pop(topic_partition).retire()
        self._take_one(topic_partition)
        return aside

    # --- logs that are made and deleted later -----------------------------------------------------------------------

    def _has_log(self, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """Returns whether a replica has its log already, so that it is opened without the disk."""
        log = self._log_manager.get(topic_partition)
        return log is not None and log.topic_id in (topic_id, None) and not self._is_to_delete(topic_partition)

    def _is_to_delete(self, topic_partition: TopicPartition) -> bool:
        """Returns whether a log is still there which is of no replica of this broker."""
        return topic_partition in self._to_delete or topic_partition in self._undeleted

    def _is_at_once(self) -> bool:
        """Returns whether one more log is made or deleted at once."""
        self._at_once -= 1
        return self._at_once >= 0 or self._later is None

    def _work_later(self) -> None:
        if self._later is not None and not self._works_later and (self._to_open or self._to_delete):
            self._works_later = True
            self._later(self._work)

    def _work(self) -> None:
        """Makes or deletes the next log, as the image of now says."""
        self._works_later = False
        try:
            if self._to_delete:
                topic_partition = next(iter(self._to_delete))
                del self._to_delete[topic_partition]
                self._delete_log(topic_partition)
                for callback in self.on_deletion:
                    callback()
            elif self._to_open:
                topic_partition = next(iter(self._to_open))
                del self._to_open[topic_partition]
                opened = self._take_one(topic_partition)
                if opened is not None:
                    for follow in self.on_opened:
                        follow(opened)
        finally:
            self._work_later()

    def _take_one(self, topic_partition: TopicPartition) -> Partition | None:
        """Opens a replica if the image says that there is one. Returns it."""
        name, index = topic_partition
        topic = self.image.topics.get(name) if self.image is not None else None
        if topic is None or index >= len(topic.partitions) or topic_partition in self._partitions:
            return None
        assigned = topic.partitions[index]
        if self._broker_id not in assigned.replicas:
            return None
        partition = self._try_to_open(topic_partition, topic.topic_id, self._log_config_of(name), assigned)
        if partition is not None:
            self._become(partition, assigned, self._may_lead())
        return partition

    def close(self, *, completely: bool) -> None:
        """Makes and deletes no more logs later. `completely` does first what is left of that: a log that is missing at
        the next start would be taken for lost, one that is too many for nobody's."""
        self._later = None
        while completely and (self._to_open or self._to_delete):
            self._work()
        for topic_partition in sorted(self._undeleted) if completely else ():
            self._delete_log(topic_partition)
        self._to_open.clear()
        self._to_delete.clear()

    # --- opening ----------------------------------------------------------------------------------------------------

    def _try_to_open(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, assigned: PartitionImage
    ) -> Partition | None:
        """Opens a replica. Returns None if the disk refuses its log, which is reported."""
        try:
            return self._open(topic_partition, topic_id, config, replica_position(assigned, self._broker_id))
        except KafkaStorageError as error:
            self._log.error("%s", error)
            self._refused.add(topic_partition.topic)
            self._report_storage_failure(topic_partition)
            return None

    def _open(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, position: int | None
    ) -> Partition:
        if self._is_to_delete(topic_partition):
            self._log_manager.delete(topic_partition)
            self._to_delete.pop(topic_partition, None)
            self._undeleted.discard(topic_partition)
        log = self._log_manager.get(topic_partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            # The log of the topic that was deleted before could not be removed then.
            self._log.warning("%s on disk belongs to a deleted topic of the same name: removing it", topic_partition)
            self._log_manager.delete(topic_partition)
            log = None
        if log is None or log.topic_id is None:
            log = self._log_manager.create(topic_partition, topic_id, config, replica_position=position)
        partition = Partition(
            topic_partition,
            topic_id,
            log,
            broker_epochs=self._broker_epoch,
            replica_lag_time_max_ms=self._replica_lag_time_max_ms,
            flush_behind=self._flush_behind,
            storage_failed=lambda failed: self._report_storage_failure(failed.topic_partition),
            suspected=self._report_suspicion,
        )
        self._throttle(partition, config)
        if log.config is not config:
            partition.set_config(config)
        self._partitions[topic_partition] = partition
        return partition

    def _throttle(self, partition: Partition, config: LogConfig) -> None:
        if self._quotas is not None:
            self._quotas.apply(partition, config)

    def _report_storage_failure(self, topic_partition: TopicPartition) -> None:
        for callback in self.on_storage_failure:
            callback(topic_partition)

    def _report_suspicion(self, partition: Partition, offset: Offset) -> None:
        for callback in self.on_suspicion:
            callback(partition, offset)

    def _broker_epoch(self, broker_id: BrokerId) -> int | None:
        """Returns the epoch of a broker's registration; None if it is fenced or not registered."""
        broker = self.image.brokers.get(broker_id) if self.image is not None else None
        return None if broker is None or broker.fenced else broker.epoch

    def isr_changes(self, now: float) -> list[IsrChange]:
        """Returns the changes of ISRs that are due. Called every half replica.lag.time.max.ms."""
        changes = (partition.propose_isr_change(now) for partition in self._partitions.values())
        return [change for change in changes if change is not None]

    def config_changed(self, topics: Iterable[str]) -> None:
        """Applies the settings of these topics to their logs."""
        for name in sorted(topics):
            topic = self.image.topics.get(name) if self.image is not None else None
            if topic is None:
                continue
            config = self._log_config_of(name)
            for index in range(len(topic.partitions)):
                partition = self._partitions.get((name, index))
                if partition is not None:
                    self._throttle(partition, config)
                    partition.set_config(config)  # wakes those that waited

    def offsets(self) -> Mapping[tuple[str, int], Offset]:
        """Returns the high watermark of each partition."""
        return {key: partition.log.high_watermark for key, partition in self._partitions.items()}
