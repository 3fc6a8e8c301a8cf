# ruff: noqa: E501, ISC004 -- sentences are compared whole
"""Replicas are spread over brokers and racks."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.placement import StripedReplicaPlacer, validate_manual_assignment
from barnabas.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from barnabas.metadata.image import BrokerImage


class NoChance:
    """Every offset 0, nothing shuffled."""

    def randrange(self, stop: int, /) -> int:
        return 0

    def shuffle(self, items: list[object], /) -> None:
        pass


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[BrokerImage]:
    return [BrokerImage(number, 1, (), rack, number in fenced) for number, rack in enumerate(racks)]


def test_the_picture_in_the_module() -> None:
    nine = brokers("A", "A", "A", "B", "B", "B", "C", "C", "C")
    assert StripedReplicaPlacer(nine, NoChance()).place(3, 3) == [(0, 3, 6), (4, 7, 1), (8, 2, 5)]


def test_without_racks_brokers_take_turns() -> None:
    assert StripedReplicaPlacer(brokers(None, None, None), NoChance()).place(4, 2) == [(0, 1), (1, 2), (2, 0), (0, 1)]


def test_a_fenced_broker_never_leads() -> None:
    placed = StripedReplicaPlacer(brokers("A", "A", "B", fenced=(0,)), random.Random(1)).place(20, 3)
    assert all(replicas[0] != 0 for replicas in placed)
    assert all(set(replicas) == {0, 1, 2} for replicas in placed)


def test_one_broker() -> None:
    assert StripedReplicaPlacer(brokers(None), random.Random()).place(3, 1) == [(0,)] * 3


@pytest.mark.parametrize(
    ("cluster", "factor", "sentence"),
    [
        (brokers(None), 2, "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or "
            "some brokers have all their log directories cordoned."),
        (brokers(None, fenced=(0,)), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        ([], 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (brokers(None), 0, "Invalid replication factor 0: the replication factor must be positive."),
    ],
)  # fmt: skip
def test_what_cannot_be_placed(cluster: list[BrokerImage], factor: int, sentence: str) -> None:
    with pytest.raises(InvalidReplicationFactor) as error:
        StripedReplicaPlacer(cluster, random.Random()).place(1, factor)
    assert error.value.message == sentence


@given(
    racks=st.lists(st.sampled_from(["A", "B", "C", None]), min_size=1, max_size=9),
    factor=st.integers(1, 9),
    partitions=st.integers(1, 60),
    seed=st.integers(),
)
def test_spread(racks: list[str | None], factor: int, partitions: int, seed: int) -> None:
    cluster = brokers(*racks)
    factor = min(factor, len(cluster))
    placed = StripedReplicaPlacer(cluster, random.Random(seed)).place(partitions, factor)
    assert len(placed) == partitions
    rack_count = len(set(racks))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[node_id] for node_id in replicas}) >= min(factor, rack_count)
    if rack_count == 1:
        leaders = Counter(replicas[0] for replicas in placed)
        assert max(leaders.values()) - min(leaders.get(node, 0) for node in range(len(racks))) <= 2 + partitions // 2


def test_leaders_are_even_over_equal_racks() -> None:
    placed = StripedReplicaPlacer(brokers("A", "A", "B", "B", "C", "C"), random.Random(7)).place(600, 3)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 60


@pytest.mark.parametrize(
    ("replicas", "factor", "sentence"),
    [
        ([], None, "an empty replica list."),
        ([1, 9], None, "broker 9, but no such broker is registered."),
        ([1, 1], None, "the broker 1 more than once."),
        ([1, 2, 3], None, "broker 3, but all its log directories are cordoned."),
        ([1, 2], 1, "a partition with 2 replica(s), but this is not consistent with previous partitions, "
                    "which have 1 replica(s)."),
    ],
)  # fmt: skip
def test_manual_assignments(replicas: list[int], factor: int | None, sentence: str) -> None:
    with pytest.raises(InvalidReplicaAssignment) as error:
        validate_manual_assignment(replicas, [1, 2, 3, 4], factor, cordoned=[3, 4], present=[4])
    assert error.value.message == f"The manual partition assignment includes {sentence}"


def test_a_cordoned_broker_keeps_the_replica_that_it_has() -> None:
    validate_manual_assignment([1, 3], [1, 3], None, cordoned=[3], present=[3])
