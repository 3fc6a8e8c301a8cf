"""What must hold after each step of a simulated cluster, whatever has happened."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.server import Broker
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage
from barnabas.records.batch import read_header
from barnabas.replication.partition import Partition
from barnabas.types import BrokerId, TopicPartition
from whole_cluster.cluster import NODE_IDS, Cluster
from whole_cluster.world import Host, SimulationError

__all__ = ["RENEWED", "Batch", "Invariants", "batches_from"]

RENEWED: Final = "renewed"
"""A topic that is deleted and created again, so that its replicas are compared in the end only."""

CLIENT: Final = re.compile(rb"[tw]\d+(?=-\d+;)")
"""The name of a client in a value that it has written."""


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes


def batches_from(log: UnifiedLog, offset: int) -> list[Batch]:
    """Returns the batches of a log from the one with this offset."""
    found: list[Batch] = []
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 30, upper_bound=log.log_end_offset, min_one_message=True)  # of one segment
        data = b"" if read.file_slice is None else bytes(read.file_slice.read())
        position = 0
        while position < len(data):
            header = read_header(data[position : position + 100])
            end = position + header.size_bytes
            if header.last_offset >= offset:
                epoch = int(header.partition_leader_epoch)
                batch = Batch(int(header.base_offset), int(header.last_offset), epoch, data[position:end])
                found.append(batch)
                offset = batch.last_offset + 1
            position = end
        if not position:
            break
    return found


@dataclass
class _Copy:
    """What a broker has of a partition, as seen after its last step."""

    batches: dict[int, Batch] = field(default_factory=dict)
    end: int = 0
    high_watermark: int = 0
    log: UnifiedLog | None = None
    leadership: tuple[Broker, int] | None = None
    """The process and the leader epoch in which it leads."""


class Invariants:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._machines = {each.name: each for each in cluster.machines.values()}
        self._copies: dict[tuple[TopicPartition, int], _Copy] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._contents: dict[tuple[TopicPartition, int, int], bytes] = {}
        """The bytes of each batch, by partition, leader epoch and offset."""
        self.committed: dict[TopicPartition, dict[int, Batch]] = {}
        """The batches that have been below a high watermark, by their first offset."""
        self._lost: dict[tuple[TopicPartition, int, int], int] = {}
        """The replicas that have lost their data, each with a broker that may not know that yet: one that stands still
        may believe that it leads, and learns of it long after the others. With the epoch of the replica's broker at
        that time: a leader that knows no later one goes by what that broker had before."""
        self._unnoticed: dict[int, int] = {}
        """The brokers that have lost data, which no controller can know yet, with their epochs at that time."""
        self._seen: dict[Partition, tuple[object, ...]] = {}
        """What tells whether a partition has changed in a step. Each process of a broker has partitions of its own."""
        self.image: MetadataImage = EMPTY_IMAGE
        """The newest metadata that a broker has."""

        for machine in self._machines.values():
            machine.on_loss = self._note_loss

    def _note_loss(self, node_id: int) -> None:
        for tp, member in list(self._copies):
            if member == node_id:
                self._lost.update(((tp, node_id, other), self._broker_epoch(node_id)) for other in NODE_IDS)
                self._copies[tp, member] = _Copy()  # until the broker has started, nobody knows what is left
        self._unnoticed[node_id] = self._broker_epoch(node_id)

    def has_unnoticed_loss(self, node_id: int) -> bool:
        """Whether a broker may be in the ISR without its records, as it has lost them: it leaves the ISR when it is
        registered again, and before a controller counts it among the live ones."""
        return node_id in self._unnoticed

    def _broker_epoch(self, node_id: int) -> int:
        broker = self.image.brokers.get(BrokerId(node_id))
        return -1 if broker is None else broker.epoch

    # --- after each step --------------------------------------------------------------------------------------------

    def after_step(self, host: Host) -> None:
        if self._cluster.world.errors:
            raise SimulationError("; ".join(self._cluster.world.errors[:3]))
        machine = self._machines.get(host.name)
        if machine is None or machine.broker is None or machine.host is not host:
            return
        broker = machine.broker
        if broker.image.version > self.image.version:
            self.image = broker.image
            for each in self.image.brokers.values():
                if not each.fenced and self._unnoticed.get(each.node_id) not in (None, each.epoch):
                    del self._unnoticed[each.node_id]
        seen = self._seen
        for partition in broker.replica_manager.all():
            log = partition.log
            offsets = log.offsets
            state = (
                log, offsets.log_end_offset, offsets.high_watermark,
                log.leader_epochs.latest, partition.is_leader, partition.leader_epoch,
            )  # fmt: skip
            if seen.get(partition) != state:
                seen[partition] = state
                self._changed(machine.node_id, broker, partition)

    def _changed(self, node_id: int, broker: Broker, partition: Partition) -> None:
        tp, log = partition.topic_partition, partition.log
        if tp.topic == RENEWED:
            return
        copy = self._copies.setdefault((tp, node_id), _Copy())
        self._read(tp, copy, log)
        leadership = (broker, int(partition.leader_epoch)) if partition.is_leader else None
        if leadership is not None and leadership != copy.leadership:
            self._elected(tp, node_id, copy, int(partition.leader_epoch))
            copy.high_watermark = 0 if copy.leadership is None else copy.high_watermark
        before, now = copy.high_watermark, int(log.high_watermark)
        if leadership is not None:
            if leadership == copy.leadership and now < before:
                raise SimulationError(f"{tp}: the high watermark of broker {node_id} goes back from {before} to {now}")
            self._check_in_sync(tp, node_id, partition, now)
        self._commit(tp, node_id, copy, 0 if leadership != copy.leadership else before, now)
        copy.high_watermark, copy.leadership = now, leadership

    def _read(self, tp: TopicPartition, copy: _Copy, log: UnifiedLog) -> None:
        """Takes over what the log has, from where it may differ."""
        end = int(log.log_end_offset)
        if copy.log is not log:
            copy.batches.clear()  # after a start all is read again
            copy.end, copy.log = 0, log
        if end < copy.end:
            for offset in [each for each in copy.batches if each >= end]:
                del copy.batches[offset]
        elif end == copy.end:
            return
        for batch in batches_from(log, min(copy.end, end)) if end > copy.end else ():
            known = self._contents.setdefault((tp, batch.leader_epoch, batch.base_offset), batch.data)
            if known != batch.data:
                raise SimulationError(f"{tp}: two batches in leader epoch {batch.leader_epoch} at {batch.base_offset}")
            copy.batches[batch.base_offset] = batch
        copy.end = end

    def _elected(self, tp: TopicPartition, node_id: int, copy: _Copy, epoch: int) -> None:
        other = self._leaders.setdefault((tp, epoch), node_id)
        if other != node_id:
            raise SimulationError(f"{tp}: brokers {other} and {node_id} lead in the epoch {epoch}")
        if copy.leadership is not None and copy.leadership[1] == epoch:
            raise SimulationError(f"{tp}: broker {node_id} leads in the epoch {epoch} again after a restart")
        newest = self._partition_image(tp)
        if newest is not None and newest.leader_epoch > epoch:
            return  # it has been replaced already, and can commit nothing
        for offset, batch in self.committed.get(tp, {}).items():
            if copy.batches.get(offset) != batch:
                raise SimulationError(
                    f"{tp}: broker {node_id} leads in the epoch {epoch} without the committed records at {offset}"
                )

    def _commit(self, tp: TopicPartition, node_id: int, copy: _Copy, before: int, now: int) -> None:
        if now <= before:
            return
        committed = self.committed.setdefault(tp, {})
        for batch in reversed(copy.batches.values()):  # in the order of their offsets
            if batch.last_offset < before:
                break
            if batch.last_offset < now:
                known = committed.setdefault(batch.base_offset, batch)
                if known.data != batch.data:
                    raise SimulationError(f"{tp}: broker {node_id} has other committed records at {batch.base_offset}")

    def _knows_loss(self, tp: TopicPartition, member: int, leader: int) -> bool:
        """Whether a leader knows that a member has registered again since it lost its records."""
        broker, epoch = self._cluster.machines[leader].broker, self._lost.get((tp, member, leader))
        known = None if broker is None else broker.image.brokers.get(BrokerId(member))
        return not self._cluster.machines[member].has_lost_records and (known is None or known.epoch != epoch)

    def _check_in_sync(self, tp: TopicPartition, node_id: int, partition: Partition, high_watermark: int) -> None:
        """All that a leader counts as in sync, and all that the controller does, have the records below its high
        watermark.

        Where a member has lost its records, its leader may count it until it hears of that, and the controller until
        the member is registered again. A leader that hears of the new registration before a controller goes by the ISR
        as it is: what it commits then is on all other members, and no controller elects the one that is fenced."""
        state = partition._leader_state
        members = set(state.maximal_isr) if state is not None else set()
        newest = self._partition_image(tp)
        is_newest = newest is not None and newest.leader == node_id and newest.leader_epoch == partition.leader_epoch
        isr = set(newest.isr) if newest is not None and is_newest else set()
        members |= isr
        for member in NODE_IDS:
            copy = self._copies.get((tp, member))
            end = 0 if copy is None else copy.end
            noticed = member not in self._unnoticed and end >= high_watermark
            if self._knows_loss(tp, member, node_id) and (member not in members or noticed):
                self._lost.pop((tp, member, node_id), None)
            may_lack_them = (tp, member, node_id) in self._lost and (member not in isr or member in self._unnoticed)
            if member in members and end < high_watermark and not may_lack_them:
                raise SimulationError(
                    f"{tp}: the high watermark of broker {node_id} is {high_watermark}, "
                    f"broker {member} of the ISR has the records below {end}"
                )

    def _partition_image(self, tp: TopicPartition) -> PartitionImage | None:
        topic = self.image.topics.get(tp.topic)
        return None if topic is None or tp.partition >= len(topic.partitions) else topic.partitions[tp.partition]

    # --- what clients see -------------------------------------------------------------------------------------------

    def acknowledged(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """A producer has been told that its record is committed."""
        for base_offset, batch in reversed(self.committed.get(tp, {}).items()):
            if base_offset <= offset <= batch.last_offset:
                if value not in batch.data:
                    raise SimulationError(f"{tp}: {value!r} is acknowledged, other records are at {offset}")
                return
        raise SimulationError(f"{tp}: {value!r} is acknowledged at {offset} before it is committed")

    def read(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """A consumer has read a record."""
        self.acknowledged(tp, offset, value)

    # --- the end ----------------------------------------------------------------------------------------------------

    def all_in_sync(self) -> bool:
        """Whether all brokers have the replicas that the metadata says, and no others, and all are in sync, have the
        same records, and know that they are committed."""
        brokers = self._cluster.brokers
        for broker in brokers.values():
            if {(each.topic_partition, each.topic_id) for each in broker.replica_manager.all()} != _assigned_to(broker):
                return False
            for topic in broker.image.topics.values():
                if any(set(partition.isr) != set(partition.replicas) for partition in topic.partitions):
                    return False
        partitions = [each for broker in brokers.values() for each in broker.replica_manager.all()]
        ends: dict[TopicPartition, set[int]] = {}
        for each in partitions:
            ends.setdefault(each.topic_partition, set()).update((each.log.log_end_offset, each.log.high_watermark))
        return all(len(found) == 1 for found in ends.values())

    def all_ended(self) -> bool:
        """Whether no transaction is open."""
        return all(
            each.log.last_stable_offset == each.log.high_watermark
            for broker in self._cluster.brokers.values()
            for each in broker.replica_manager.all()
        )

    def check_copies(self, node_ids: Iterable[int]) -> None:
        """Compares the logs as they are on the disks."""
        brokers = self._cluster.brokers
        contents: dict[TopicPartition, list[Batch]] = {}
        for node_id in node_ids:
            for partition in brokers[node_id].replica_manager.all():
                found = batches_from(partition.log, 0)
                if contents.setdefault(partition.topic_partition, found) != found:
                    raise SimulationError(f"{partition.topic_partition}: the logs differ in the end")
        for tp, batches in self.committed.items():
            if [batch for _, batch in sorted(batches.items())] != contents.get(tp, []):
                raise SimulationError(f"{tp}: the logs are not what was committed")

    def check_producer_ids(self) -> None:
        """No two clients have had the same producer id."""
        owners: dict[int, bytes] = {}
        for batches in self.committed.values():
            for batch in batches.values():
                client = CLIENT.search(batch.data)
                if client is None:
                    continue
                producer_id = int(read_header(batch.data[:100]).producer_id)
                owner = owners.setdefault(producer_id, client[0])
                if owner != client[0]:
                    raise SimulationError(f"{owner!r} and {client[0]!r} have the producer id {producer_id}")

    def none_waits(self) -> bool:
        """Whether no request waits for a partition to change."""
        return not any(
            isinstance(each, DelayedOperation)
            for broker in self._cluster.brokers.values()
            for partition in broker.replica_manager.all()
            for each in partition.watchers
        )


def _assigned_to(broker: Broker) -> set[tuple[TopicPartition, UUID]]:
    return {
        (TopicPartition(topic.name, number), topic.topic_id)
        for topic in broker.image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if broker.node_id in partition.replicas
    }
