"""Plans of replicas: valid, even, spread over racks, and with few moves."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.cluster.reassignment_plan import plan_replicas
from barnabas.cli.framework.output import CommandFailed
from barnabas.types import TopicPartition


def partitions(*replicas: list[int]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition("t", number): each for number, each in enumerate(replicas)}


def without_racks(*node_ids: int) -> dict[int, str | None]:
    return dict.fromkeys(node_ids)


def test_what_is_even_stays() -> None:
    present = partitions([1, 2, 3], [2, 3, 1], [3, 1, 2])
    assert plan_replicas(present, without_racks(1, 2, 3)) == present


def test_a_broker_that_leaves_is_replaced_and_the_others_stay() -> None:
    present = partitions([1, 2, 3], [2, 3, 1], [3, 1, 2])
    planned = plan_replicas(present, without_racks(1, 2, 4))
    assert [sorted(replicas) for replicas in planned.values()] == [[1, 2, 4]] * 3
    assert Counter(replicas[0] for replicas in planned.values()) == {1: 1, 2: 1, 4: 1}


def test_the_replication_factor_is_raised_and_lowered() -> None:
    raised = plan_replicas(partitions([1], [1], [1]), without_racks(1, 2, 3), replication_factor=3)
    assert [sorted(replicas) for replicas in raised.values()] == [[1, 2, 3]] * 3
    lowered = plan_replicas(raised, without_racks(1, 2, 3), replication_factor=1)
    assert sorted(replicas[0] for replicas in lowered.values()) == [1, 2, 3]


def test_a_new_broker_gets_its_share_and_no_more() -> None:
    planned = plan_replicas(partitions(*[[1, 2]] * 6), without_racks(1, 2, 3))
    load = Counter(node_id for replicas in planned.values() for node_id in replicas)
    assert max(load.values()) - min(load.values()) <= 1
    assert sum(3 in replicas for replicas in planned.values()) == 4


def test_partitions_that_stay_count_as_load() -> None:
    others = {TopicPartition("u", number): [2] for number in range(4)}
    planned = plan_replicas(partitions([1], [1]), without_racks(1, 2, 3), others=others)
    assert sorted(replicas[0] for replicas in planned.values()) == [1, 3]


def test_racks_are_spread() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    planned = plan_replicas(partitions([1, 2], [2, 1], [3, 4]), racks)
    assert all({racks[node_id] for node_id in replicas} == {"a", "b"} for replicas in planned.values())


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(CommandFailed, match="t-0 needs 3 brokers for its replicas, and there are 2 brokers"):
        plan_replicas(partitions([1, 2, 3]), without_racks(1, 2))


@given(
    st.lists(st.permutations(range(1, 7)), max_size=20),
    st.integers(1, 4),
    st.dictionaries(st.integers(1, 6), st.sampled_from([None, "a", "b"]), min_size=4),
)
def test_every_plan_is_valid(orders: list[list[int]], factor: int, racks: dict[int, str | None]) -> None:
    present = partitions(*(order[:factor] for order in orders))
    planned = plan_replicas(present, racks)
    assert planned.keys() == present.keys()
    for replicas in planned.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= racks.keys()
