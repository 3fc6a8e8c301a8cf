"""Plans of replicas: valid, even, spread over racks, and with few moves."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.cluster.reassignment.plan import REPLICA_BYTES_MIN, Assignment, plan_replicas
from barnabas.cli.framework.output import CommandFailed
from barnabas.types import TopicPartition

MB = 1_000_000


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
    with pytest.raises(CommandFailed, match=r"needs 1 broker .* there are no brokers to put them on; add a broker$"):
        plan_replicas(partitions([1]), without_racks())


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


@st.composite
def clusters(
    draw: st.DrawFn,
) -> tuple[dict[TopicPartition, list[int]], dict[int, str | None], dict[TopicPartition, int]]:
    """Returns partitions with replicas anywhere, the racks of the brokers, and the bytes of the partitions."""
    rack = st.sampled_from(["a", "b", "c"])
    racks: dict[int, str | None] = draw(
        st.dictionaries(st.integers(1, 7), st.none(), min_size=1) | st.dictionaries(st.integers(1, 7), rack, min_size=1)
    )
    some = st.lists(st.sampled_from(sorted(racks)), min_size=1, max_size=3, unique=True)
    present = partitions(*draw(st.lists(some, max_size=25)))
    sizes = {tp: draw(st.sampled_from([0, 1, 10, 50, 1000])) * MB for tp in present}
    return present, racks, sizes


def crowding(assignment: Assignment, racks: Mapping[int, str | None]) -> int:
    """Returns how many pairs of replicas share a rack."""
    return sum(
        count * (count - 1) // 2
        for replicas in assignment.values()
        for rack, count in Counter(racks[node_id] for node_id in replicas).items()
        if rack is not None
    )


def least_crowding(factor: int, racks: Mapping[int, str | None]) -> int:
    """Returns the fewest pairs of replicas of one partition that share a rack."""
    room, used = Counter(racks.values()), Counter[str | None]()
    for _ in range(factor):
        used[min((rack for rack in room if used[rack] < room[rack]), key=lambda rack: used[rack])] += 1
    return sum(count * (count - 1) // 2 for count in used.values())


def spread(counts: Mapping[int, int], racks: Mapping[int, str | None]) -> int:
    """Returns the sum of squares, which is the lower the more even the counts of the brokers are."""
    return sum(counts.get(node_id, 0) ** 2 for node_id in racks)


def leaders(assignment: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def loads(assignment: Assignment, sizes: Mapping[TopicPartition, int]) -> Counter[int]:
    base = max(REPLICA_BYTES_MIN, sum(sizes.values()) // (10 * max(1, len(sizes))))
    found: Counter[int] = Counter()
    for tp, replicas in assignment.items():
        found.update(dict.fromkeys(replicas, sizes[tp] + base))
    return found


@given(clusters())
def test_a_plan_for_what_was_planned_is_empty(
    cluster: tuple[dict[TopicPartition, list[int]], dict[int, str | None], dict[TopicPartition, int]],
) -> None:
    present, racks, sizes = cluster
    planned = plan_replicas(present, racks, sizes=sizes)
    assert plan_replicas(planned, racks, sizes=sizes) == planned


@given(clusters())
def test_racks_are_as_spread_as_they_can_be_and_nothing_is_less_even(
    cluster: tuple[dict[TopicPartition, list[int]], dict[int, str | None], dict[TopicPartition, int]],
) -> None:
    present, racks, sizes = cluster
    planned = plan_replicas(present, racks, sizes=sizes)
    for tp, replicas in planned.items():
        assert len(set(replicas)) == len(replicas) == len(present[tp])
        named = {node_id: rack for node_id, rack in racks.items() if rack is not None}
        if named:
            assert crowding({tp: replicas}, racks) == least_crowding(len(replicas), racks)
    if crowding(planned, racks) == crowding(present, racks):
        assert spread(loads(planned, sizes), racks) <= spread(loads(present, sizes), racks)
    if {tp: set(replicas) for tp, replicas in planned.items()} == {tp: set(each) for tp, each in present.items()}:
        assert spread(leaders(planned), racks) <= spread(leaders(present), racks)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 30), st.data())
def test_only_a_new_broker_gets_replicas_where_all_was_even(
    brokers: int, factor: int, count: int, data: st.DataObject
) -> None:
    old = range(1, brokers + 1)
    some = st.lists(st.sampled_from(old), min_size=min(factor, brokers), max_size=min(factor, brokers), unique=True)
    present = partitions(*data.draw(st.lists(some, min_size=count, max_size=count)))
    size = data.draw(st.integers(0, 10_000)) * MB
    sizes = dict.fromkeys(present, size)
    even = plan_replicas(present, without_racks(*old), sizes=sizes)
    planned = plan_replicas(even, without_racks(*old, 9), sizes=sizes)
    for tp, replicas in planned.items():
        assert set(replicas) - set(even[tp]) <= {9}
    replicas_of_all = Counter(node_id for replicas in planned.values() for node_id in replicas)
    share = sum(replicas_of_all.values()) / (brokers + 1)
    assert replicas_of_all[9] >= min(share * 0.9, share - 1) - 1e-6
    assert replicas_of_all[9] <= share + 1 + 1e-6


def test_the_bytes_of_many_small_partitions_weigh_as_much_as_those_of_a_large_one() -> None:
    present = partitions([1], *[[1]] * 10)
    sizes = dict.fromkeys(present, 1000 * MB) | {TopicPartition("t", 0): 10_000 * MB}
    planned = plan_replicas(present, without_racks(1, 2), sizes=sizes)
    load = loads(planned, sizes)
    assert max(load.values()) < 1.1 * sum(load.values()) / 2
    assert plan_replicas(partitions([1], *[[2]] * 10), without_racks(1, 2), sizes=sizes) == partitions([1], *[[2]] * 10)


def test_the_bytes_of_nearly_empty_partitions_do_not_outweigh_the_number_of_replicas() -> None:
    present = partitions(*[[1]] * 8, *[[2]] * 8, *[[3]] * 14)
    sizes = {tp: 50_000 if replicas != [3] else 30_000 for tp, replicas in present.items()}
    planned = plan_replicas(present, without_racks(1, 2, 3), sizes=sizes)
    assert set(Counter(replicas[0] for replicas in planned.values()).values()) <= {9, 10, 11}
    assert sum(planned[tp] != replicas for tp, replicas in present.items()) <= 4
    even = partitions(*[[1]] * 5, *[[2]] * 5, *[[3]] * 5)
    assert plan_replicas(even, without_racks(1, 2, 3), sizes=dict.fromkeys(list(even)[:5], 1000)) == even


def test_nothing_moves_as_long_as_all_are_near_the_mean() -> None:
    present = partitions(*[[1]] * 105, *[[2]] * 95)
    assert plan_replicas(present, without_racks(1, 2)) == present


def test_leaders_are_handed_on_over_a_third_broker() -> None:
    present = partitions([1, 2], [1, 2], [1, 2], [2, 3], [2, 3], [3])
    planned = plan_replicas(present, {1: "a", 2: "b", 3: "a"})
    assert leaders(planned) == {1: 2, 2: 2, 3: 2}
    assert [sorted(replicas) for replicas in planned.values()] == list(present.values())


def test_of_ten_thousand_partitions_a_new_broker_gets_its_share() -> None:
    order: Sequence[int] = range(1, 10)
    present = partitions(*([order[i % 9], order[(i + 1) % 9], order[(i + 4) % 9]] for i in range(10_000)))
    planned = plan_replicas(present, without_racks(*range(1, 11)), sizes={tp: tp.partition % 7 * MB for tp in present})
    new = sum(10 in replicas for replicas in planned.values())
    assert 2500 < new < 3500
    load = loads(planned, dict.fromkeys(present, 0))
    assert max(load.values()) < 1.2 * min(load.values())
    assert sum(set(planned[tp]) != set(present[tp]) for tp in present) == new
