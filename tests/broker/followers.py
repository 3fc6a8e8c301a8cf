"""A follower on another broker, for partitions that a broker of a test leads."""

from barnabas.replication.partition import Partition
from barnabas.replication.replica import FollowerFetch
from barnabas.types import BrokerId, LeaderEpoch, Offset

__all__ = ["FOLLOWER", "add_follower", "elect", "follower_has", "remove_follower", "without_follower"]

FOLLOWER = BrokerId(99)


def add_follower(partition: Partition) -> None:
    """Gives the partition a second replica, which is in sync."""
    _change(partition, (partition.leader_id, FOLLOWER), (partition.leader_id, FOLLOWER))


def remove_follower(partition: Partition) -> None:
    """Takes the second replica out of the ISR."""
    _change(partition, partition.replicas, partition.replicas[:1])


def without_follower(partition: Partition) -> None:
    """Makes the leader the only replica."""
    _change(partition, partition.replicas[:1], partition.replicas[:1])


def elect(partition: Partition, leader: BrokerId) -> None:
    """Elects a leader in the next leader epoch."""
    _change(partition, partition.replicas, partition.replicas, leader)


def follower_has(partition: Partition, offset: int, *, log_start_offset: int = 0, broker_epoch: int = -1) -> None:
    """Lets the follower fetch at an offset. `broker_epoch` is that of its registration, if it has one."""
    fetch = FollowerFetch(Offset(offset), partition.leader_epoch, LeaderEpoch(-1), Offset(log_start_offset))
    partition.fetch_from_follower(FOLLOWER, broker_epoch, fetch, max_bytes=1, min_one_message=True, now=0.0)


def _change(
    partition: Partition, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], leader: BrokerId | None = None
) -> None:
    me = partition.replicas[0]
    partition.become(
        broker_id=me,
        leader_id=me if leader is None else leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + (leader is not None)),
        partition_epoch=partition.partition_epoch + 1,
        replicas=replicas,
        in_sync_replicas=isr,
    )
