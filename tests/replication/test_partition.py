"""Partitions over real logs: roles, epochs and marks."""

import uuid

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from barnabas.log.log_manager import LogManager
from barnabas.replication.partition import Partition
from barnabas.types import Offset, TopicPartition
from replication.rig import Watcher, validated_batch

ME, OTHER = 1, 2
TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture
def partition(logs: LogManager) -> Partition:
    name = TopicPartition("t", 0)
    return Partition(name, TOPIC_ID, logs.create(name, TOPIC_ID, LogConfig(min_insync_replicas=2)))


def lead(partition: Partition, *, leader: int = ME, epoch: int = 0, isr: tuple[int, ...] = (ME,)) -> None:
    partition.become(
        broker_id=ME, leader_id=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=(ME, OTHER),
        in_sync_replicas=isr,
    )  # fmt: skip


def test_who_does_not_lead_takes_nothing(partition: Partition) -> None:
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(validated_batch(), 1)
    lead(partition, leader=OTHER)
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(validated_batch(), 1)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader()


def test_alone_in_sync_everything_is_committed_at_once(partition: Partition) -> None:
    lead(partition)
    assert partition.append_as_leader(validated_batch(), 1).first_offset == 0
    assert partition.is_committed(Offset(0))
    assert partition.upper_bound(read_committed=False) == partition.upper_bound(read_committed=True) == 1
    assert not partition.waits_for_commit


def test_acks_all_needs_enough_replicas_in_sync(partition: Partition) -> None:
    lead(partition)
    with pytest.raises(NotEnoughReplicas, match=r"1 in-sync replicas, min\.insync\.replicas asks for 2"):
        partition.append_as_leader(validated_batch(), -1)
    lead(partition, isr=(ME, OTHER))
    assert partition.append_as_leader(validated_batch(), -1).first_offset == 0


def test_with_a_follower_in_sync_nothing_is_committed_by_the_leader_alvalidated_batch(partition: Partition) -> None:
    lead(partition, isr=(ME, OTHER))
    partition.append_as_leader(validated_batch(), 1)
    assert not partition.is_committed(Offset(0))
    assert partition.read(0, 1000, read_committed=False, min_one_message=True).file_slice is None
    lead(partition, epoch=0, isr=(ME,))  # the follower has left the ISR
    assert partition.is_committed(Offset(0))


def test_older_epochs_are_not_listened_to(partition: Partition) -> None:
    lead(partition, epoch=5)
    lead(partition, leader=OTHER, epoch=4)
    assert (partition.is_leader, partition.leader_epoch) == (True, 5)


def test_clients_with_another_epoch_are_fenced(partition: Partition) -> None:
    lead(partition, epoch=5)
    partition.check_leader(-1)
    partition.check_leader(5)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_leader(4)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_leader(6)
    lead(partition, leader=OTHER, epoch=6)
    with pytest.raises(FencedLeaderEpoch):  # the epoch first: a client with an old one must learn of the new
        partition.check_leader(5)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader(6)


def test_ends_of_epochs(partition: Partition) -> None:
    lead(partition, epoch=1)
    partition.append_as_leader(validated_batch(), 1)
    partition.append_as_leader(validated_batch(), 1)
    lead(partition, epoch=3)
    assert partition.end_of_epoch(3) == (3, 2), "before its first record too"
    partition.append_as_leader(validated_batch(), 1)
    assert partition.end_of_epoch(1) == partition.end_of_epoch(2) == (1, 2)
    assert partition.end_of_epoch(3) == (3, 3)
    assert partition.end_of_epoch(4) == (-1, -1)
    assert partition.diverging_epoch(1, 2) is None
    assert partition.diverging_epoch(1, 3) == (1, 2)
    assert partition.diverging_epoch(2, 3) == (1, 2)


def test_changes_wake_who_watches(partition: Partition) -> None:
    watcher = Watcher(partition)
    lead(partition)
    assert watcher.woken == 1
    partition.append_as_leader(validated_batch(), 1)
    assert watcher.woken == 2
    partition.delete_records(1)
    assert watcher.woken == 3
    partition.retire()
    assert watcher.woken == 4
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(validated_batch(), 1)


def test_the_start_of_the_log_moves_to_the_high_watermark_at_most(partition: Partition) -> None:
    lead(partition)
    for _ in range(3):
        partition.append_as_leader(validated_batch(), 1)
    assert partition.delete_records(2) == 2
    assert partition.delete_records(-1) == 3
    with pytest.raises(OffsetOutOfRange):
        partition.delete_records(4)


def test_settings_reach_log_and_policy(partition: Partition) -> None:
    partition.set_config(LogConfig(max_message_bytes=77, cleanup_policy=frozenset(("compact",))))
    assert partition.log.config.max_message_bytes == 77
    assert (partition.append_policy.max_message_bytes, partition.append_policy.compacted) == (77, True)
