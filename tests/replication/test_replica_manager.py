"""ReplicaManager: logs, leaders and followers as the metadata image says."""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.config.log_config import DEFAULT_LOG_CONFIG, LogConfig
from barnabas.errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from barnabas.log.log_manager import LogManager
from barnabas.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.replication import replica_manager
from barnabas.replication.replica import FollowerFetch, FollowerRead
from barnabas.replication.replica_manager import ReplicaManager, replica_position
from barnabas.types import TopicPartition
from hand_clock import HandClock
from log.log_files import fail_at
from replication.rig import Watcher, validated_batch

ME, OTHER = 1, 2
TOPIC_ID = uuid.UUID(int=7)


class Cluster:
    """A manager, and the images that it is given."""

    def __init__(self, logs: LogManager, later: Callable[[Callable[[], object]], None] | None = None) -> None:
        self.logs = logs
        self.configs: dict[str, LogConfig] = {}
        self.manager = ReplicaManager(
            ME,
            logs,
            lambda topic: self.configs.get(topic, DEFAULT_LOG_CONFIG),
            logging.getLogger("test"),
            later=later,
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

    def apply(self, *changed: str, **image: Any) -> None:
        self.manager.apply(MetadataImage(topics=dict(self.topics), **image), changed or None)


@pytest.fixture
def cluster(logs: LogManager) -> Cluster:
    return Cluster(logs)


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "position"),
    [
        ((1,), (), (), None),
        ((2, 1), (), (), 1),
        ((2, 1, 3), (1,), (3,), 1),
        ((1, 2), (1,), (2,), None),
        ((1, 3, 2), (1, 3), (), 1),
        ((2, 3, 1), (3,), (1,), None),
    ],
)
def test_the_place_of_a_replica_among_the_others(
    replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], position: int | None
) -> None:
    assert replica_position(PartitionImage(2, 0, replicas, replicas, 0, adding, removing), ME) == position


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
    partition.append_as_leader(validated_batch(), 1)
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


def test_a_replica_that_leaves_the_assignment_is_deleted(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topic("t", ME, OTHER, ME)
    cluster.apply()
    leaving = cluster.manager.leader_of("t", 0)
    watcher = Watcher(leaving)
    topic = cluster.topics["t"]
    assigned = PartitionImage(OTHER, 1, (OTHER,), (OTHER,), 1)
    cluster.topics["t"] = topic._replace(partitions=(assigned, *topic.partitions[1:]))
    cluster.apply("t")
    assert watcher.woken
    assert leaving.is_retired
    assert cluster.resigned == ["t-0"]
    assert cluster.manager.get("t", 0) is None
    assert cluster.manager.get("t", 1) is not None
    assert not (tmp_path / "t-0").exists()
    cluster.topics["t"] = topic._replace(partitions=(assigned._replace(replicas=(OTHER, ME), partition_epoch=2),))
    cluster.apply("t")
    again = cluster.manager.get("t", 0)
    assert again is not None
    assert (again.log.log_end_offset, again.is_leader) == (0, False)


def test_an_assignment_that_is_no_newer_deletes_nothing(cluster: Cluster) -> None:
    cluster.topic("t", ME, epoch=5)
    cluster.apply()
    topic = cluster.topics["t"]
    cluster.topics["t"] = topic._replace(partitions=(PartitionImage(OTHER, 5, (OTHER,), (OTHER,), 5),))
    cluster.apply("t")
    assert cluster.manager.leader_of("t", 0).is_leader


def test_the_log_of_an_older_topic_of_the_same_name_is_not_taken(cluster: Cluster) -> None:
    """The topic was deleted and made again while this broker was away."""
    old = cluster.logs.create(TopicPartition("t", 0), uuid.UUID(int=1), DEFAULT_LOG_CONFIG)
    old.append_as_leader(validated_batch(), 0)
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


def test_changes_of_isrs_name_the_brokers_of_the_image(cluster: Cluster, clock: HandClock) -> None:
    cluster.topic("t", ME, OTHER, ME)
    cluster.topic("u", ME, topic_id=2)
    for name in ("t", "u"):
        topic = cluster.topics[name]
        in_sync = tuple(partition._replace(isr=(ME, OTHER)) for partition in topic.partitions)
        cluster.topics[name] = topic._replace(partitions=in_sync)
    brokers = {ME: BrokerImage(ME, 5, ()), OTHER: BrokerImage(OTHER, 6, ())}
    cluster.manager.apply(MetadataImage(topics=dict(cluster.topics), brokers=brokers))
    assert cluster.manager.isr_changes(clock.now + 30) == []
    changes = cluster.manager.isr_changes(clock.now + 30.1)
    assert sorted(str(change.topic_partition) for change in changes) == ["t-0", "t-2", "u-0"]
    assert all(change.new_isr == ((ME, 5),) for change in changes)


def test_only_a_live_broker_joins_an_isr(cluster: Cluster, clock: HandClock) -> None:
    cluster.topic("t", ME)
    brokers = {ME: BrokerImage(ME, 5, ()), OTHER: BrokerImage(OTHER, 6, (), fenced=True)}
    cluster.manager.apply(MetadataImage(topics=dict(cluster.topics), brokers=brokers))
    partition = cluster.manager.leader_of("t", 0)

    def fetch() -> FollowerRead:
        position = FollowerFetch(0, 0, -1, 0)
        return partition.fetch_from_follower(OTHER, 6, position, max_bytes=1, min_one_message=True, now=clock.now)

    assert fetch().isr_change is None
    live = MetadataImage(topics=dict(cluster.topics), brokers=brokers | {OTHER: BrokerImage(OTHER, 6, ())})
    cluster.manager.apply(live)
    change = fetch().isr_change
    assert change is not None
    assert change.new_isr == ((ME, 5), (OTHER, 6))


def test_a_broker_leads_nothing_before_the_controller_has_taken_it_in(cluster: Cluster) -> None:
    """After a restart it would lead in a leader epoch in which it may have had other records."""
    cluster.topic("t", ME, OTHER, epoch=4)
    cluster.apply(brokers={ME: BrokerImage(ME, 8, (), fenced=True)})
    assert cluster.led == []
    with pytest.raises(NotLeaderOrFollower):
        cluster.manager.leader_of("t", 0)
    cluster.topic("t", ME, OTHER, epoch=5)
    cluster.apply("t", brokers={ME: BrokerImage(ME, 8, ())})
    assert cluster.led == ["t-0"]
    assert cluster.manager.leader_of("t", 0).leader_epoch == 5
    cluster.topic("t", ME, OTHER, epoch=6)
    cluster.apply("t", brokers={ME: BrokerImage(ME, 8, (), fenced=True)})
    assert cluster.resigned == ["t-0"]


# --- logs that are made and deleted later -----------------------------------------------------------------------------

AT_ONCE = 2


class Turns(Cluster):
    """A cluster whose event loop runs one piece of work a turn."""

    def __init__(self, logs: LogManager) -> None:
        self.work: deque[Callable[[], object]] = deque()
        super().__init__(logs, self.work.append)
        self.opened: list[str] = []
        self.deletions = 0
        self.manager.on_opened.append(lambda partition: self.opened.append(str(partition.topic_partition)))
        self.manager.on_deletion.append(self._deleted)

    def _deleted(self) -> None:
        self.deletions += 1

    def turn(self) -> None:
        self.work.popleft()()

    def turns(self) -> int:
        """Runs all that is left; the number of turns that it took."""
        taken = 0
        while self.work:
            self.turn()
            taken += 1
        return taken

    def held(self, tmp_path: Path) -> list[str]:
        return sorted(path.name for path in tmp_path.glob("*-?"))


@pytest.fixture
def turns(logs: LogManager, monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(replica_manager, "AT_ONCE_MAX", AT_ONCE)
    return Turns(logs)


def test_of_many_logs_each_turn_of_the_loop_makes_one_leaders_first(turns: Turns, tmp_path: Path) -> None:
    turns.topic("t", ME, OTHER, OTHER, ME, OTHER, ME)
    turns.apply("t")
    assert turns.held(tmp_path) == ["t-0", "t-1"]
    for index in range(AT_ONCE, 6):
        with pytest.raises(NotLeaderOrFollower):
            turns.manager.leader_of("t", index)
        assert turns.manager.get("t", index) is None
    turns.turn()
    assert turns.opened == ["t-3"]
    assert turns.manager.leader_of("t", 3).is_leader
    assert turns.turns() == 3
    assert turns.opened == ["t-3", "t-5", "t-2", "t-4"]
    assert turns.led == ["t-0", "t-3", "t-5"]
    assert turns.held(tmp_path) == [f"t-{index}" for index in range(6)]


def test_a_newer_image_counts_for_logs_that_are_not_made_yet(turns: Turns, tmp_path: Path) -> None:
    turns.topic("t", *[ME] * 6)
    turns.apply("t")
    turns.topic("t", OTHER, ME, ME, OTHER, ME, ME, epoch=1)
    left = turns.topics["t"]
    moved = PartitionImage(OTHER, 1, (OTHER,), (OTHER,), 1)
    turns.topics["t"] = left._replace(partitions=(*left.partitions[:5], moved))
    turns.topic("u", ME, topic_id=2)
    turns.apply("t", "u")
    assert turns.manager.leader_of("u", 0).is_leader, "a small topic does not wait for a large one"
    with pytest.raises(NotLeaderOrFollower):
        turns.manager.leader_of("t", 0)  # it resigns at once
    turns.turns()
    assert turns.held(tmp_path) == ["t-0", "t-1", "t-2", "t-3", "t-4", "u-0"]
    follower = turns.manager.get("t", 3)
    assert follower is not None
    assert (follower.is_leader, follower.leader_id, follower.leader_epoch) == (False, OTHER, 1)
    assert turns.manager.leader_of("t", 4).leader_epoch == 1


def test_of_many_replicas_that_are_gone_each_turn_deletes_one_log(turns: Turns, tmp_path: Path) -> None:
    turns.topic("t", *[ME] * 5)
    turns.apply("t")
    turns.turns()
    partitions = [turns.manager.leader_of("t", index) for index in range(5)]
    del turns.topics["t"]
    turns.apply("t")
    assert all(partition.is_retired for partition in partitions)
    assert len(turns.resigned) == 5
    for index in range(5):
        with pytest.raises(UnknownTopicOrPartition):
            turns.manager.leader_of("t", index)
    assert turns.held(tmp_path) == ["t-2", "t-3", "t-4"]
    assert (turns.turns(), turns.deletions) == (3, 3)
    assert turns.held(tmp_path) == []


def test_a_topic_that_is_made_again_before_its_logs_are_deleted_begins_empty(turns: Turns) -> None:
    for topic_id in (1, 2, 1):
        turns.topic("t", *[ME] * 5, topic_id=topic_id)
        turns.apply("t")
        for _ in range(2):
            turns.turn()
        for partition in turns.manager.all():
            partition.append_as_leader(validated_batch(), 1)
        del turns.topics["t"]
        turns.apply("t")
    turns.topic("t", *[ME] * 5, topic_id=3)
    turns.apply("t")
    turns.turns()
    assert [turns.manager.leader_of("t", index).log.log_end_offset for index in range(5)] == [0] * 5
    assert {log.topic_id for log in turns.logs.logs.values()} == {uuid.UUID(int=3)}


def test_a_log_that_the_disk_refuses_later_does_not_keep_the_others(turns: Turns, tmp_path: Path) -> None:
    turns.topic("t", *[ME] * 5)
    failed: list[str] = []
    turns.manager.on_storage_failure.append(lambda topic_partition: failed.append(str(topic_partition)))
    (tmp_path / "t-3").write_text("in the way")
    turns.apply("t")
    turns.turns()
    assert failed == ["t-3"]
    assert turns.manager.leader_of("t", 4).is_leader
    (tmp_path / "t-3").unlink()
    turns.manager.open_refused()
    assert turns.manager.leader_of("t", 3).is_leader


def test_a_stop_makes_and_deletes_what_is_left(turns: Turns, tmp_path: Path) -> None:
    turns.topic("gone", *[ME] * 4, topic_id=2)
    turns.apply("gone")
    turns.turns()
    del turns.topics["gone"]
    turns.topic("t", *[ME] * 4)
    turns.apply("gone", "t")
    turns.manager.close(completely=True)
    assert turns.held(tmp_path) == ["t-0", "t-1", "t-2", "t-3"]
    turns.turns()
    assert len(turns.led) == 8


def test_a_broker_that_ends_at_once_makes_and_deletes_nothing_more(turns: Turns, tmp_path: Path) -> None:
    turns.topic("t", *[ME] * 4)
    turns.apply("t")
    turns.manager.close(completely=False)
    assert turns.turns() == 1
    assert turns.held(tmp_path) == ["t-0", "t-1"]


@pytest.fixture
def kept(turns: Turns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Logs of a topic that is gone, which the disk does not let go before the patch is undone."""
    turns.topic("t", *[ME] * 5)
    turns.apply("t")
    turns.turns()
    turns.manager.leader_of("t", 0).append_as_leader(validated_batch(), 1)
    with monkeypatch.context() as patch:
        fail_at(patch, "rename", f"{tmp_path}/t-")
        topic = turns.topics.pop("t")
        turns.apply("t")
        turns.turns()
        turns.topics["t"] = topic
        yield patch


def test_logs_that_the_disk_does_not_let_go_are_deleted_later(
    turns: Turns, tmp_path: Path, kept: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del turns.topics["t"]
    for _ in range(2):
        turns.manager.open_refused()
        turns.turns()
    told = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert len([record for record in told if "cannot be renamed" in record.message]) == 5
    assert turns.held(tmp_path) == [f"t-{index}" for index in range(5)]
    kept.undo()
    turns.manager.open_refused()
    turns.turns()
    assert turns.held(tmp_path) == []
    turns.manager.open_refused()


def test_a_replica_that_comes_back_does_not_begin_with_a_log_that_was_to_be_deleted(
    turns: Turns, tmp_path: Path, kept: pytest.MonkeyPatch
) -> None:
    turns.apply("t")
    turns.turns()
    with pytest.raises(KafkaStorageError, match="could not be opened"):
        turns.manager.leader_of("t", 0)
    kept.undo()
    turns.manager.open_refused()
    turns.turns()
    assert [turns.manager.leader_of("t", index).log.log_end_offset for index in range(5)] == [0] * 5
    turns.manager.open_refused()
    turns.turns()
    assert turns.held(tmp_path) == [f"t-{index}" for index in range(5)]


def test_a_stop_deletes_what_the_disk_has_not_let_go(turns: Turns, tmp_path: Path, kept: pytest.MonkeyPatch) -> None:
    kept.undo()
    turns.manager.close(completely=True)
    assert turns.held(tmp_path) == []
