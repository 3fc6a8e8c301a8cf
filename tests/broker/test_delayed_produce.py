"""A Produce that waits for its commit: each batch ends in its own way, and all of them end once."""

from typing import Any

import pytest

from barnabas.broker.delayed_produce import DelayedProduce, Uncommitted
from barnabas.errors import KafkaStorageError, NotLeaderOrFollower, RequestTimedOut


class Partition:
    """What a delayed operation looks at."""

    def __init__(self) -> None:
        self.leader_epoch = 3
        self.is_leader = True
        self.committed = -1
        self.flush_error: KafkaStorageError | None = None

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
