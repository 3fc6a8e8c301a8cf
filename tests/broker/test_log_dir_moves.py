"""Replicas move between the data directories of a running broker."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from barnabas.broker import log_dir_moves
from barnabas.broker.server import Broker
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest
from barnabas.replication import log_dir_move
from barnabas.types import TopicPartition
from broker.admin_rig import ask, create, produce, running_broker

A0 = TopicPartition("a", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with two_disks(tmp_path) as broker:
        yield broker


def two_disks(tmp_path: Path, **settings: object) -> AbstractContextManager[Broker]:
    return running_broker(tmp_path, log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}", **settings)


def test_the_windows_of_moves_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = {"size_seconds": 3, "num": 4}
    names = {f"alter_log_dirs_replication_quota_window_{name}": value for name, value in settings.items()}
    with two_disks(tmp_path, replica_alter_log_dirs_io_max_bytes_per_second=1000, **names) as broker:
        limiter, start = broker.log_dir_moves.limiter, broker.loop.time()
        assert limiter.bytes_at_once == 3000, "a window of three seconds"
        limiter.take(1, start)
        assert not limiter.is_exceeded(start + 12, 11_999), "what four windows left unused"
        assert limiter.is_exceeded(start + 12, 12_001)


def alter(broker: Broker, path: object, *partitions: int, topic: str = "a") -> list[int]:
    """The error codes."""
    wanted = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=partitions)])
    (result,) = ask(broker, AlterReplicaLogDirsRequest(dirs=[wanted])).results
    assert result.topic_name == topic
    return [each.error_code for each in result.partitions]


def described(broker: Broker) -> dict[str, list[DescribeLogDirsPartition]]:
    """The replicas by the name of their directory."""
    results = ask(broker, DescribeLogDirsRequest(topics=None)).results
    return {Path(r.log_dir).name: [p for topic in r.topics for p in topic.partitions] for r in results}


def home(broker: Broker) -> Path:
    return Path(broker.log_manager.directory_of(A0).path)


def other(broker: Broker) -> Path:
    return home(broker).parent / ("two" if home(broker).name == "one" else "one")


def settle(broker: Broker) -> None:
    """Runs the loop until no replica moves any more."""

    run_until(broker, lambda: not broker.log_dir_moves.is_busy)


def run_until(broker: Broker, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        broker.loop.run_until_complete(asyncio.sleep(0.001))


def end_offset(broker: Broker) -> int:
    return broker.replica_manager.leader_of("a", 0).log.log_end_offset


def test_a_replica_moves_with_its_records(broker: Broker) -> None:
    create(broker, "a")
    size = produce(broker, "a", 0)
    before, after = home(broker), other(broker)
    assert alter(broker, after, 0) == [0]
    (current,) = described(broker)[before.name]
    (future,) = described(broker)[after.name]
    assert (current.is_future_key, future.is_future_key) == (False, True)
    assert (current.offset_lag, future.offset_lag) == (0, 2)
    settle(broker)
    assert home(broker) == after
    assert described(broker)[before.name] == []
    (moved,) = described(broker)[after.name]
    assert (moved.is_future_key, moved.offset_lag, moved.partition_size) == (False, 0, size)
    produce(broker, "a", 0)
    assert end_offset(broker) == 4
    assert not (before / "a-0").exists()
    assert not (after / "a-0" / "barnabas-moved-from").exists()


def test_appends_during_the_move_are_in_the_new_directory(broker: Broker) -> None:
    create(broker, "a", segment_bytes="10000")
    for _ in range(200):
        produce(broker, "a", 0)
    after = other(broker)
    alter(broker, after, 0)

    async def append() -> int:
        count = 0
        while broker.log_dir_moves.is_busy:
            produce(broker, "a", 0)
            count += 1
            await asyncio.sleep(0)
        return count

    count = broker.loop.run_until_complete(asyncio.wait_for(append(), 60))
    produce(broker, "a", 0)
    assert home(broker) == after
    assert end_offset(broker) == 2 * (200 + count + 1)
    log = broker.replica_manager.leader_of("a", 0).log
    offset = 0
    for _, _, header in log.headers_from(log.log_start_offset):
        assert header.base_offset == offset
        offset = header.next_offset
    assert offset == log.log_end_offset


def test_the_same_directory_again_changes_nothing(broker: Broker) -> None:
    create(broker, "a")
    produce(broker, "a", 0)
    before = home(broker)
    assert alter(broker, before, 0) == [0]
    assert not broker.log_dir_moves.is_busy
    after = other(broker)
    assert alter(broker, after, 0) == [0]
    future = broker.log_manager.futures.get(A0)
    assert alter(broker, after, 0) == [0]
    assert broker.log_manager.futures.get(A0) is future
    settle(broker)
    assert home(broker) == after


def test_a_request_to_the_present_directory_cancels(broker: Broker) -> None:
    create(broker, "a")
    produce(broker, "a", 0)
    before, after = home(broker), other(broker)
    alter(broker, after, 0)
    assert alter(broker, before, 0) == [0]
    assert described(broker)[after.name] == []
    settle(broker)
    assert home(broker) == before
    assert not list(after.glob("*-future"))
    assert alter(broker, after, 0) == [0]
    settle(broker)
    assert home(broker) == after


def test_a_replica_that_is_yet_to_come_is_created_there(broker: Broker, tmp_path: Path) -> None:
    for directory in ("one", "two"):
        name = f"for-{directory}"
        assert alter(broker, tmp_path / directory, 0, 1, topic=name) == [3, 3]
        create(broker, name, 2)
        homes = [broker.log_manager.directory_of(TopicPartition(name, index)).path for index in (0, 1)]
        assert homes == [str(tmp_path / directory)] * 2


def test_errors(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "a")
    assert alter(broker, tmp_path / "three", 0) == [57]
    assert alter(broker, "one", 0) == [57]
    assert alter(broker, other(broker), 0, 7) == [0, 3]
    settle(broker)

    def refuse(path: str, *_: object) -> None:
        raise OSError(28, "No space left on device", path)

    with monkeypatch.context() as patched:
        patched.setattr("os.mkdir", refuse)
        assert alter(broker, other(broker), 0) == [56]
    assert alter(broker, other(broker), 0) == [0]


def test_the_topic_is_deleted_meanwhile(broker: Broker, tmp_path: Path) -> None:
    create(broker, "a")
    produce(broker, "a", 0)
    alter(broker, other(broker), 0)
    ask(broker, DeleteTopicsRequest(topic_names=["a"]), 5)
    settle(broker)
    create(broker, "a")
    broker.log_manager.remove_deleted(broker.clock.wall_ms() + 3_600_000)
    found = {path.name for disk in ("one", "two") for path in (tmp_path / disk).iterdir() if path.is_dir()}
    assert found == {"a-0"}
    assert end_offset(broker) == 0


def test_what_could_not_be_removed_is_removed_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "a")
    produce(broker, "a", 0)
    before, fsync, failures = home(broker), log_dir_move.fsync_file, [28, 5]

    def refuse(path: str) -> None:
        if failures:
            raise OSError(failures.pop(), "the disk refuses", path)
        fsync(path)

    monkeypatch.setattr(log_dir_move, "fsync_file", refuse)
    monkeypatch.setattr(log_dir_moves, "CLEAN_UP_AGAIN_S", 0.001)
    alter(broker, other(broker), 0)
    settle(broker)
    assert not (before / "a-0").exists()
    run_until(broker, lambda: not list(before.glob("a-0*-stray")))
    assert not failures


def test_a_target_that_fails_leaves_the_replica_where_it_is(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "a")
    produce(broker, "a", 0)
    before, after = home(broker), other(broker)
    real = broker.log_manager._environment.disk.open

    def refuse(self: object, path: str) -> int:
        if path.startswith(str(after)):
            raise OSError(5, "Input/output error", path)
        return real(path)

    with monkeypatch.context() as patched:
        patched.setattr("barnabas.log.directories.disk.Disk.open", refuse)
        alter(broker, after, 0)
        settle(broker)
    assert home(broker) == before
    assert described(broker)[after.name] == []
    produce(broker, "a", 0)
    assert end_offset(broker) == 4
    alter(broker, after, 0)
    settle(broker)
    assert home(broker) == after


def test_a_start_goes_on_with_a_move(tmp_path: Path) -> None:
    with two_disks(tmp_path) as broker:
        create(broker, "a")
        produce(broker, "a", 0)
        after = other(broker)
        alter(broker, after, 0)
    with two_disks(tmp_path) as broker:
        assert described(broker)[after.name][0].is_future_key
        settle(broker)
        assert home(broker) == after
        assert end_offset(broker) == 2


def test_what_compaction_removes_does_not_come_back(broker: Broker) -> None:
    """The cleaner leaves a log alone while it moves."""
    create(broker, "a", cleanup_policy="compact")
    manager = broker.log_cleaner.manager
    log = broker.log_manager.logs[A0]
    assert log in manager._candidates()
    alter(broker, other(broker), 0)
    assert log not in manager._candidates()
    log.cleaned_offset = log.log_end_offset
    settle(broker)
    moved = broker.log_manager.logs[A0]
    assert moved is not log
    assert moved.cleaned_offset == log.cleaned_offset
    assert moved in manager._candidates()


def test_a_rate_limits_the_copy(tmp_path: Path) -> None:
    with two_disks(tmp_path, replica_alter_log_dirs_io_max_bytes_per_second=100_000) as broker:
        create(broker, "a")
        size = sum(produce(broker, "a", 0) for _ in range(4000))
        log = broker.replica_manager.leader_of("a", 0).log
        assert log.size_bytes == size > 300_000
        began = time.monotonic()
        alter(broker, other(broker), 0)
        settle(broker)
        assert end_offset(broker) == 8000
        took = time.monotonic() - began
        assert took > (size - 64 * 1024 - 100_000) / 100_000 - 0.5, "64 KiB at the end are not counted"


def test_with_fsync_appends_are_committed_on_the_new_disk(tmp_path: Path) -> None:
    with two_disks(tmp_path, durability="fsync") as broker:
        create(broker, "a")
        produce(broker, "a", 0)
        alter(broker, other(broker), 0)
        settle(broker)
        produce(broker, "a", 0)
        partition = broker.replica_manager.leader_of("a", 0)
        run_until(broker, lambda: partition.log.high_watermark == 4)
        assert partition.log.recovery_point == 4
