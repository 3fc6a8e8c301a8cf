"""A Produce that waits for its commit: each batch ends in its own way, and all of them end once."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
from barnabas.clock import SYSTEM_CLOCK
from barnabas.config.log_config import DEFAULT_LOG_CONFIG, LogConfig
from barnabas.errors import KafkaStorageError, NotLeaderOrFollower, RequestTimedOut
from barnabas.log.log_manager import LogManager
from barnabas.replication.partition import Partition as RealPartition
from barnabas.replication.replica import FollowerFetch
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from replication.rig import validated_batch

pytestmark = pytest.mark.source

ME, OTHER = BrokerId(1), BrokerId(2)


class Partition:
    """What a delayed operation looks at."""

    def __init__(self) -> None:
        self.leader_epoch = 3
        self.is_leader = True
        self.committed = -1
        self.flush_error: KafkaStorageError | None = None
        self.has_enough_replicas = True

    def is_committed(self, offset: int) -> bool:
        return offset <= self.committed


class Waiting:
    """Batches with last offset 5 in partitions 0, 1, 2."""

    def __init__(self) -> None:
        self.partitions = [Partition() for _ in range(3)]
        self.failed: dict[int, type[Exception]] = {}
        self.finished = 0
        waiting: list[Any] = [Uncommitted(each, 5, index) for index, each in enumerate(self.partitions)]  # type: ignore[arg-type]
        self.operation = DelayedProduce(waiting, self._fail, self._finish)

    def _fail(self, index: int, error: Exception) -> None:
        assert index not in self.failed
        self.failed[index] = type(error)

    def _finish(self) -> None:
        self.finished += 1

    def look(self) -> bool:
        return self.operation.try_complete([])


def test_it_is_complete_when_all_are_committed() -> None:
    waiting = Waiting()
    assert waiting.operation.partitions == set(waiting.partitions)
    assert not waiting.look()
    waiting.partitions[0].committed = 5
    waiting.partitions[1].committed = 4
    waiting.partitions[2].committed = 9
    assert not waiting.look()
    assert waiting.operation.partitions == {waiting.partitions[1]}
    waiting.partitions[1].committed = 5
    assert waiting.look()
    assert (waiting.failed, waiting.finished) == ({}, 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"leader_epoch": 4}, NotLeaderOrFollower),
        ({"is_leader": False}, NotLeaderOrFollower),
        ({"leader_epoch": 4, "committed": 9}, NotLeaderOrFollower),
        ({"flush_error": KafkaStorageError("no")}, KafkaStorageError),
    ],
)
def test_one_that_fails_keeps_the_others_waiting(change: dict[str, Any], error: type[Exception]) -> None:
    waiting = Waiting()
    for name, value in change.items():
        setattr(waiting.partitions[1], name, value)
    assert not waiting.look()
    assert not waiting.look()
    assert (waiting.failed, waiting.finished) == ({1: error}, 0)


def test_what_was_committed_before_the_disk_failed_counts() -> None:
    waiting = Waiting()
    for each in waiting.partitions:
        each.committed, each.flush_error = 5, KafkaStorageError("no")
    assert waiting.look()
    assert (waiting.failed, waiting.finished) == ({}, 1)


def test_the_timeout_is_told_of_the_rest() -> None:
    waiting = Waiting()
    waiting.partitions[0].committed = 5
    waiting.look()
    waiting.operation.expire()
    assert (waiting.failed, waiting.finished) == ({1: RequestTimedOut, 2: RequestTimedOut}, 1)


# --- over a real log with a follower ---


class Produce:
    """One appended batch and its delayed operation."""

    def __init__(self, partition: RealPartition, required_acks: int = -1) -> None:
        self.partition = partition
        info = partition.append_as_leader(validated_batch(), required_acks)
        self.failed: list[str] = []
        self.finished = 0
        self.wait = DelayedProduce(
            [Uncommitted(partition, info.last_offset, "it")], self._fail, self._finish, required_acks
        )

    def _fail(self, key: str, error: Exception) -> None:
        self.failed.append(type(error).__name__)

    def _finish(self) -> None:
        self.finished += 1

    def outcome(self) -> list[str] | None:
        """Returns the errors; None while it waits."""
        done = self.wait.try_complete((self.partition,))
        assert done == (self.finished == 1)
        return self.failed if done else None


class Led:
    """A partition that this broker leads, with one follower in sync."""

    def __init__(self, logs: LogManager, *, fsync: bool = False) -> None:
        name = TopicPartition("t", 0)
        log = logs.create(name, uuid.UUID(int=7), LogConfig(min_insync_replicas=2))
        flush_behind = (lambda _: None) if fsync else None
        self.partition = RealPartition(name, uuid.UUID(int=7), log, flush_behind=flush_behind)
        self.become()

    def become(
        self, *, epoch: int = 0, version: int = 0, leader: BrokerId = ME, isr: tuple[BrokerId, ...] = (ME, OTHER)
    ) -> None:
        self.partition.become(
            broker_id=ME, leader_id=leader, leader_epoch=LeaderEpoch(epoch), partition_epoch=version,
            replicas=(ME, OTHER), in_sync_replicas=isr,
        )  # fmt: skip

    def follower_has(self, offset: int) -> None:
        fetch = FollowerFetch(Offset(offset), LeaderEpoch(-1), LeaderEpoch(-1), Offset(0))
        self.partition.fetch_from_follower(OTHER, -1, fetch, max_bytes=1, min_one_message=True, now=0.0)

    def flush(self) -> None:
        self.partition.log.flush()
        self.partition.flushed()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([tmp_path], SYSTEM_CLOCK)
    manager.startup(lambda topic: DEFAULT_LOG_CONFIG, node_id=1)
    yield manager
    manager.shutdown(flush=False)


def test_acks_all_waits_for_the_in_sync_replicas(logs: LogManager) -> None:
    led = Led(logs)
    produce = Produce(led.partition)
    assert produce.outcome() is None
    led.follower_has(0)
    assert produce.outcome() is None
    led.follower_has(1)
    assert produce.outcome() == []


def test_a_batch_that_is_committed_when_too_few_replicas_are_left(logs: LogManager) -> None:
    led = Led(logs)
    produce = Produce(led.partition)
    led.follower_has(1)
    led.become(version=1, isr=(ME,))
    assert produce.outcome() == ["NotEnoughReplicasAfterAppend"]


def test_a_batch_waits_while_the_isr_is_too_small(logs: LogManager) -> None:
    led = Led(logs)
    produce = Produce(led.partition)
    led.become(version=1, isr=(ME,))
    assert produce.outcome() is None
    produce.wait.expire()
    assert produce.failed == ["RequestTimedOut"]


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_another_leader_epoch_fails_the_batch(logs: LogManager, leader: BrokerId) -> None:
    led = Led(logs)
    produce = Produce(led.partition)
    led.become(epoch=1, version=1, leader=leader)
    assert produce.outcome() == ["NotLeaderOrFollower"]


def test_with_fsync_acks_all_needs_the_disks_of_all(logs: LogManager) -> None:
    led = Led(logs, fsync=True)
    produce = Produce(led.partition)
    led.follower_has(1)
    assert produce.outcome() is None
    led.flush()
    assert produce.outcome() == []


def test_with_fsync_acks_1_needs_the_leaders_disk_alone(logs: LogManager) -> None:
    led = Led(logs, fsync=True)
    produce = Produce(led.partition, required_acks=1)
    assert produce.outcome() is None
    led.become(version=1, isr=(ME,))
    assert produce.outcome() is None
    led.flush()
    assert not led.partition.is_committed(Offset(0))
    assert produce.outcome() == []


def test_a_failed_sync_fails_the_batch(logs: LogManager) -> None:
    led = Led(logs, fsync=True)
    produce = Produce(led.partition)
    led.partition.flush_failed(KafkaStorageError("EIO"))
    assert produce.outcome() == ["KafkaStorageError"]
