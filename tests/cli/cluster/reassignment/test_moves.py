"""Moves of replicas, as they are sent to the controller."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from barnabas.cli.cluster.reassignment.moves import alter_reassignments, begin_moves, without_removing
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.errors import ItemsFailed, UnknownTopicOrPartition
from barnabas.types import TopicPartition

MOVES = {TopicPartition("t", number): [1] for number in range(2500)}


class FakeAdmin:
    """Notes how many partitions each request has, and refuses one partition."""

    def __init__(self, refused: int) -> None:
        self.counts: list[int] = []
        self._refused = TopicPartition("t", refused)

    def alter_partition_reassignments(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        self.counts.append(len(replicas))
        if self._refused in replicas:
            rest = dict.fromkeys(replicas.keys() - {self._refused})
            raise ItemsFailed("moves", {self._refused: UnknownTopicOrPartition("gone")}, rest)


def test_many_moves_are_sent_in_several_requests_and_one_that_is_refused_stops_no_other() -> None:
    admin: Any = FakeAdmin(refused=500)
    failed = begin_moves(admin, MOVES, wait=False, throttle=0)
    assert (admin.counts, list(failed)) == ([1000, 1000, 500], [("t", 500)])


def test_many_moves_are_cancelled_in_several_requests() -> None:
    admin: Any = FakeAdmin(refused=2499)
    failed = alter_reassignments(admin, dict.fromkeys(MOVES))
    assert (admin.counts, list(failed)) == ([1000, 1000, 500], [("t", 2499)])


@pytest.mark.parametrize("told", [[1, 2, 3], [4, 2, 3, 1], [1]], ids=["before it began", "in progress", "long before"])
def test_a_reassignment_in_progress_counts_as_done_whatever_the_broker_knows(told: list[int]) -> None:
    moving, still = TopicPartition("t", 0), TopicPartition("t", 1)
    running = {moving: PartitionReassignment((4, 2, 3, 1), (4,), (1,))}
    assert without_removing({moving: told, still: [1]}, running) == {moving: [4, 2, 3], still: [1]}
