"""durability=fsync: one sync for many appends, and an answer for everybody when a disk fails."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.replication.group_commit import GroupCommit


class FakeTask:
    def __init__(self, log: "FakeLog") -> None:
        self.log = log
        self.up_to = log.log_end_offset

    def run(self) -> None:
        self.log.synced += 1
        if self.log.run_raises is not None:
            raise self.log.run_raises

    def complete(self) -> bool:
        if self.log.complete_fails:
            raise KafkaStorageError("EIO")
        if self.log.overtaken:
            self.log.overtaken -= 1
            return False
        self.log.recovery_point = self.up_to
        return True


class FakeLog:
    def __init__(self) -> None:
        self.log_end_offset = 5
        self.recovery_point = -1
        self.prepare_fails = self.complete_fails = False
        self.overtaken = 0
        """So many flushes find other segments in the log than they synced."""
        self.run_raises: Exception | None = None
        self.synced = 0

    def prepare_flush(self) -> FakeTask:
        if self.prepare_fails:
            raise KafkaStorageError("too many open files")
        return FakeTask(self)


class FakePartition:
    topic_partition = "t-0"

    def __init__(self) -> None:
        self.log = FakeLog()
        self.is_retired = False
        self.durable = -1
        self.error: KafkaStorageError | None = None

    def flushed(self) -> None:
        self.durable = self.log.recovery_point

    def flush_failed(self, error: KafkaStorageError) -> None:
        self.error = error


def commits(scenario: Callable[[GroupCommit, FakePartition, FakePartition], None]) -> tuple[FakePartition, ...]:
    """Two partitions append, `scenario` says what the first one's disk does; then both append once more."""
    first, second = FakePartition(), FakePartition()

    async def run() -> None:
        with ThreadPoolExecutor(1) as executor:
            commit = GroupCommit(asyncio.get_running_loop(), executor, logging.getLogger("test"))
            scenario(commit, first, second)
            async with asyncio.timeout(10):
                while second.durable < 6:
                    if second.durable == 5:
                        second.log.log_end_offset = 6
                        commit(second)
                    await asyncio.sleep(0)

    asyncio.run(run())
    return first, second


@pytest.mark.parametrize("failure", ["prepare_fails", "complete_fails"])
def test_a_failing_disk_fails_its_partition_and_no_other(failure: str) -> None:
    def scenario(commit: GroupCommit, first: FakePartition, second: FakePartition) -> None:
        setattr(first.log, failure, True)
        commit(first)  # type: ignore[arg-type]
        commit(second)  # type: ignore[arg-type]

    first, second = commits(scenario)
    assert first.durable == -1
    assert isinstance(first.error, KafkaStorageError)
    assert second.error is None


def test_a_flush_that_was_overtaken_is_made_again() -> None:
    def scenario(commit: GroupCommit, first: FakePartition, second: FakePartition) -> None:
        first.log.overtaken = 2
        commit(first)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(0.02, commit, second)

    first, _ = commits(scenario)
    assert first.error is None
    assert (first.durable, first.log.synced) == (5, 3)


def test_a_bug_in_the_thread_is_no_commit() -> None:
    def scenario(commit: GroupCommit, first: FakePartition, second: FakePartition) -> None:
        first.log.run_raises = RuntimeError("bug")
        commit(first)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(0.02, commit, second)

    first, _ = commits(scenario)
    assert first.durable == -1
    assert first.error is not None


def test_a_deleted_partition_is_not_opened_again() -> None:
    def scenario(commit: GroupCommit, first: FakePartition, second: FakePartition) -> None:
        commit(first)  # type: ignore[arg-type]
        first.is_retired = True
        commit(second)  # type: ignore[arg-type]

    first, _ = commits(scenario)
    assert first.log.synced == 0
