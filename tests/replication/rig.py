"""A batch to append, a leader without followers, a clock that is set by hand, and a watcher of a partition."""

from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.partition import Partition
from barnabas.types import BrokerId, LeaderEpoch


def validated_batch(value: bytes = b"x", **producer: int) -> ValidatedBatch:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value, ())], **producer)
    header = read_header(batch)
    return ValidatedBatch(header, batch, header.max_timestamp, 0, 1)


def lead_alone(partition: Partition, epoch: int) -> None:
    """Makes broker 1 the leader, and the only replica."""
    partition.become(
        broker_id=BrokerId(1),
        leader_id=BrokerId(1),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=epoch,
        replicas=[BrokerId(1)],
        in_sync_replicas=[BrokerId(1)],
    )


class Watcher:
    def __init__(self, partition: Partition) -> None:
        self.woken = 0
        partition.watchers[self] = None

    def partition_changed(self, *_: object) -> None:
        self.woken += 1
