"""Assignors: what must hold for every group and each of them, large groups, and assignors of the caller's own."""

import random
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings

from barnabas.client.consumer.assignors import (
    Assignments,
    Assignor,
    LastAssignment,
    Member,
    RangeAssignor,
    StickyAssignor,
    assignor_for,
)
from barnabas.errors import UsageError
from barnabas.types import TopicPartition
from client.consumer.assignors.groups import RANGE, by_name, check_shares, group, groups, holding, shown


@by_name
def test_more_members_than_partitions_and_topics_that_are_not_there(assignor: Assignor) -> None:
    members = [*group(["b", "c"], ["t"]), Member("a", ("t", "gone"))]
    assert shown(assignor.assign(members, {"t": 2})) == {"a": ["t-0"], "b": ["t-1"], "c": []}
    assert assignor.assign(members, {}) == {"a": [], "b": [], "c": []}
    assert assignor.assign([], {"t": 3}) == {}


@by_name
@settings(max_examples=150, deadline=None)
@given(groups())
def test_every_partition_has_one_owner(assignor: Assignor, the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    shares = assignor.assign(members, counts)
    check_shares(shares, members, counts, whole=not assignor.cooperative)
    assert shares == assignor.assign(list(reversed(members)), counts), "the order of the answer must not matter"


@by_name
@settings(max_examples=100, deadline=None)
@given(groups(alike=True))
def test_shares_differ_by_one(assignor: Assignor, the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    if assignor.cooperative:
        members = [member._replace(owned=()) for member in members]
    shares = assignor.assign(members, counts)
    if assignor is RANGE:
        for topic in counts:
            sizes = [sum(topic_partition.topic == topic for topic_partition in share) for share in shares.values()]
            assert max(sizes) - min(sizes) <= 1
    else:
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1


def large(alike: bool) -> tuple[list[Member], dict[str, int]]:
    rng = random.Random(4)
    counts = {f"t{index:03}": 100 for index in range(100)}
    topics = tuple(counts)
    members = [
        Member(f"m{index:04}", topics if alike else tuple(sorted(rng.sample(topics, 10)))) for index in range(1000)
    ]
    return members, counts


@by_name
@pytest.mark.parametrize("alike", [True, False])
def test_a_thousand_members_with_ten_thousand_partitions(assignor: Assignor, alike: bool) -> None:
    """Within what a heartbeat thread may lose: a leader that takes long is taken for dead."""
    members, counts = large(alike)
    start = time.process_time()
    shares = assignor.assign(members, counts)
    again = assignor.assign(holding(members, shares)[:-1], counts)
    spent = time.process_time() - start
    check_shares(shares, members, counts)
    check_shares(again, members[:-1], counts, whole=not assignor.cooperative)
    assert spent < 5, f"{spent:.1f} s"


class EverythingToTheFirst:
    name = "first"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignments:
        shares: Assignments = {member.member_id: [] for member in members}
        shares[min(shares)] = [TopicPartition(t, p) for t, count in partition_counts.items() for p in range(count)]
        return shares


def test_strategies() -> None:
    assert isinstance(assignor_for("sticky"), StickyAssignor)
    assert isinstance(assignor_for(RangeAssignor), RangeAssignor)
    assert isinstance(assignor_for(EverythingToTheFirst), EverythingToTheFirst)
    mine = EverythingToTheFirst()
    assert assignor_for(mine) is mine
    with pytest.raises(UsageError, match="it needs name, cooperative, user_data, assign"):
        assignor_for(object())
