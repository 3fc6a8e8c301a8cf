"""Partitions and the replica manager over real logs: roles, epochs, marks, images."""

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.log_config import DEFAULT_LOG_CONFIG, LogConfig
from barnabas.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.records.batch import read_header
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.records.validation import ValidatedBatch
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.types import Offset, TopicPartition

ME, OTHER = 1, 2
TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([tmp_path], SYSTEM_CLOCK)
    manager.startup(lambda topic: DEFAULT_LOG_CONFIG, node_id=ME)
    yield manager
    manager.shutdown(flush=False)


@pytest.fixture
def partition(logs: LogManager) -> Partition:
    name = TopicPartition("t", 0)
    return Partition(name, TOPIC_ID, logs.create(name, TOPIC_ID, LogConfig(min_insync_replicas=2)))


def lead(partition: Partition, *, leader: int = ME, epoch: int = 0, isr: tuple[int, ...] = (ME,)) -> None:
    partition.become(
        broker_id=ME, leader_id=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=(ME, OTHER),
        in_sync_replicas=isr,
    )  # fmt: skip


def one(value: bytes = b"x") -> ValidatedBatch:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value, ())])
    header = read_header(batch)
    return ValidatedBatch(header, batch, header.max_timestamp, 0, 1)


class Watcher:
    def __init__(self, partition: Partition) -> None:
        self.woken = 0
        partition.watchers.add(self)

    def partition_changed(self, *_: object) -> None:
        self.woken += 1


def test_who_does_not_lead_takes_nothing(partition: Partition) -> None:
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(one(), 1)
    lead(partition, leader=OTHER)
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(one(), 1)
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader()


def test_alone_in_sync_everything_is_committed_at_once(partition: Partition) -> None:
    lead(partition)
    assert partition.append_as_leader(one(), 1).first_offset == 0
    assert partition.is_committed(Offset(0))
    assert partition.upper_bound(read_committed=False) == partition.upper_bound(read_committed=True) == 1
    assert not partition.waits_for_commit


def test_acks_all_needs_enough_replicas_in_sync(partition: Partition) -> None:
    lead(partition)
    with pytest.raises(NotEnoughReplicas, match=r"1 in-sync replicas, min\.insync\.replicas asks for 2"):
        partition.append_as_leader(one(), -1)
    lead(partition, isr=(ME, OTHER))
    assert partition.append_as_leader(one(), -1).first_offset == 0


def test_with_a_follower_in_sync_nothing_is_committed_by_the_leader_alone(partition: Partition) -> None:
    lead(partition, isr=(ME, OTHER))
    partition.append_as_leader(one(), 1)
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
    partition.append_as_leader(one(), 1)
    partition.append_as_leader(one(), 1)
    lead(partition, epoch=3)
    assert partition.end_of_epoch(3) == (3, 2), "before its first record too"
    partition.append_as_leader(one(), 1)
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
    partition.append_as_leader(one(), 1)
    assert watcher.woken == 2
    partition.delete_records(1)
    assert watcher.woken == 3
    partition.retire()
    assert watcher.woken == 4
    with pytest.raises(NotLeaderOrFollower):
        partition.append_as_leader(one(), 1)


def test_the_start_of_the_log_moves_to_the_high_watermark_at_most(partition: Partition) -> None:
    lead(partition)
    for _ in range(3):
        partition.append_as_leader(one(), 1)
    assert partition.delete_records(2) == 2
    assert partition.delete_records(-1) == 3
    with pytest.raises(OffsetOutOfRange):
        partition.delete_records(4)


def test_settings_reach_log_and_policy(partition: Partition) -> None:
    partition.set_config(LogConfig(max_message_bytes=77, cleanup_policy=frozenset(("compact",))))
    assert partition.log.config.max_message_bytes == 77
    assert (partition.append_policy.max_message_bytes, partition.append_policy.compacted) == (77, True)


# --- the replica manager --------------------------------------------------------------------------------------------


class Cluster:
    """A manager, and the images that it is given."""

    def __init__(self, logs: LogManager) -> None:
        self.logs = logs
        self.configs: dict[str, LogConfig] = {}
        self.manager = ReplicaManager(
            ME, logs, lambda topic: self.configs.get(topic, DEFAULT_LOG_CONFIG), logging.getLogger("test")
        )
        self.led: list[str] = []
        self.resigned: list[str] = []
        self.manager.on_leadership.append(lambda partition: self.led.append(str(partition.topic_partition)))
        self.manager.on_resignation.append(lambda topic_partition: self.resigned.append(str(topic_partition)))
        self.topics: dict[str, TopicImage] = {}

    def topic(self, name: str, *leaders: int, epoch: int = 0, topic_id: int = 1) -> None:
        """One partition for each leader; both brokers are replicas, the leader is in sync."""
        partitions = tuple(PartitionImage(leader, epoch, (ME, OTHER), (leader,), epoch) for leader in leaders)
        self.topics[name] = TopicImage(name, uuid.UUID(int=topic_id), partitions)

    def apply(self, *changed: str) -> None:
        self.manager.apply(MetadataImage(topics=dict(self.topics)), changed or None)


@pytest.fixture
def cluster(logs: LogManager) -> Cluster:
    return Cluster(logs)


def test_an_image_makes_logs_and_leaders(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topic("t", ME, OTHER, ME)
    cluster.apply()
    assert cluster.led == ["t-0", "t-2"]
    assert sorted(path.name for path in tmp_path.glob("t-*")) == ["t-0", "t-1", "t-2"]
    manager = cluster.manager
    assert manager.leader_of("t", 0).is_leader
    with pytest.raises(NotLeaderOrFollower):
        manager.leader_of("t", 1)
    for name, index in (("t", 3), ("t", -1), ("u", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            manager.leader_of(name, index)
    assert manager.topic_name(uuid.UUID(int=1)) == "t"
    assert len(list(manager.all())) == 3


def test_leaders_come_and_go(cluster: Cluster) -> None:
    cluster.topic("t", ME)
    cluster.apply()
    cluster.topic("t", OTHER, epoch=1)
    cluster.apply("t")
    assert (cluster.led, cluster.resigned) == (["t-0"], ["t-0"])
    cluster.topic("t", ME, epoch=2)
    cluster.apply("t")
    assert cluster.led == ["t-0", "t-0"]


def test_partitions_are_added(cluster: Cluster) -> None:
    cluster.topic("t", ME)
    cluster.apply()
    before = cluster.manager.leader_of("t", 0)
    cluster.topic("t", ME, ME)
    cluster.apply("t")
    assert cluster.manager.leader_of("t", 0) is before
    assert cluster.led == ["t-0", "t-1"]


def test_a_topic_that_is_deleted_or_made_anew(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topic("t", ME)
    cluster.apply()
    partition = cluster.manager.leader_of("t", 0)
    partition.append_as_leader(one(), 1)
    watcher = Watcher(partition)
    cluster.topic("t", ME, topic_id=2)
    cluster.apply("t")
    assert watcher.woken
    assert cluster.resigned == ["t-0"]
    assert cluster.manager.leader_of("t", 0).log.log_end_offset == 0
    assert cluster.manager.topic_name(uuid.UUID(int=1)) is None
    assert cluster.manager.topic_name(uuid.UUID(int=2)) == "t"
    del cluster.topics["t"]
    cluster.apply("t")
    with pytest.raises(UnknownTopicOrPartition):
        cluster.manager.leader_of("t", 0)
    assert not (tmp_path / "t-0").exists()
    assert cluster.manager.offsets() == {}


def test_the_log_of_an_older_topic_of_the_same_name_is_not_taken(cluster: Cluster) -> None:
    """The topic was deleted and made again while this broker was away."""
    old = cluster.logs.create(TopicPartition("t", 0), uuid.UUID(int=1), DEFAULT_LOG_CONFIG)
    old.append_as_leader(one(), 0)
    cluster.topic("t", ME, topic_id=2)
    cluster.apply()
    assert cluster.manager.leader_of("t", 0).log.log_end_offset == 0


def test_changed_settings_reach_the_partitions(cluster: Cluster) -> None:
    cluster.topic("t", ME)
    cluster.topic("u", ME, topic_id=2)
    cluster.apply()
    cluster.configs["t"] = LogConfig(max_message_bytes=5)
    cluster.manager.config_changed(["t", "not-there"])
    assert cluster.manager.leader_of("t", 0).append_policy.max_message_bytes == 5
    assert cluster.manager.leader_of("u", 0).append_policy.max_message_bytes != 5
