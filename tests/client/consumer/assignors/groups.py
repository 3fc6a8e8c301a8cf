"""Groups for the tests of assignors: by hand, at random, and those that Kafka has answered."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from barnabas.client.consumer.assignors import (
    Assignments,
    Assignor,
    CooperativeStickyAssignor,
    LastAssignment,
    Member,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from barnabas.client.consumer.assignors.sticky import encode_previous
from barnabas.types import TopicPartition

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
ALL: tuple[Assignor, ...] = (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE)
by_name = pytest.mark.parametrize("assignor", ALL, ids=lambda assignor: assignor.name)


def at(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def shown(shares: Assignments) -> dict[str, list[str]]:
    return {name: [str(topic_partition) for topic_partition in share] for name, share in shares.items()}


def group(names: Sequence[str], topics: Sequence[str]) -> list[Member]:
    return [Member(name, tuple(topics)) for name in names]


def holding(members: Sequence[Member], shares: Assignments, generation: int = 1) -> list[Member]:
    """The members as they join the next time: with what they have, in both forms of telling it."""
    return [
        member._replace(
            owned=tuple(shares.get(member.member_id, ())),
            generation_id=generation if member.member_id in shares else -1,
            user_data=encode_previous(LastAssignment(tuple(shares[member.member_id]), generation))
            if member.member_id in shares
            else None,
        )
        for member in members
    ]


topic_names = ("t0", "t1", "t2", "t3")
counts_of = st.dictionaries(st.sampled_from(topic_names), st.integers(0, 9), max_size=4)
subscriptions = st.sets(st.sampled_from([*topic_names, "missing"]), max_size=5)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None) -> tuple[list[Member], dict[str, int]]:
    """Members that own things as after some earlier life: disjoint, but perhaps no longer there or wanted."""
    counts = draw(counts_of)
    names = draw(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=7))
    same = alike if alike is not None else draw(st.booleans())
    topics = draw(subscriptions)
    free = [TopicPartition(topic, index) for topic in topic_names for index in range(9)]
    order = draw(st.permutations(free))
    members = []
    for name in names:
        wanted = tuple(sorted(topics if same else draw(subscriptions)))
        owned = tuple(order.pop() for _ in range(draw(st.sampled_from([0, 0, 1, 3, 6]))) if order)
        generation = draw(st.integers(-1, 3)) if owned else -1
        data = encode_previous(LastAssignment(owned, generation)) if owned else None
        static = f"i{name}" if draw(st.booleans()) else None
        members.append(Member(f"m{name}", wanted, owned, generation, static, None, data))
    return members, counts


def check_shares(
    shares: Assignments, members: Sequence[Member], counts: Mapping[str, int], *, whole: bool = True
) -> None:
    """Every member is there; each partition that somebody wants has one owner, who wants it."""
    assert shares.keys() == {member.member_id for member in members}
    given_away = [topic_partition for share in shares.values() for topic_partition in share]
    assert len(given_away) == len(set(given_away)), "two owners"
    wanted = {topic for member in members for topic in member.topics}
    there = {TopicPartition(topic, index) for topic in wanted for index in range(counts.get(topic, 0))}
    assert set(given_away) <= there
    if whole:
        assert set(given_away) == there, "left over"
    topics = {member.member_id: member.topics for member in members}
    assert all(topic_partition.topic in topics[name] for name, share in shares.items() for topic_partition in share)


def check_cooperation(
    assign: Callable[[Sequence[Member]], Assignments],
    members: Sequence[Member],
    counts: Mapping[str, int],
    *,
    rebalances: int,
) -> None:
    """No partition has two owners on the way, and after these rebalances at most each has one and keeps it."""
    for generation in range(4, 4 + rebalances):
        shares = assign(members)
        for member in members:
            others = {topic_partition for other in members if other is not member for topic_partition in other.owned}
            assert not others & set(shares[member.member_id]), "given before it was given up"
        after = holding(members, shares, generation)
        if [member.owned for member in after] == [member.owned for member in members]:
            break
        members = after
    check_shares(shares, members, counts)


def golden(name: str = "assignments") -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())
    return cases


def member_from(item: dict[str, Any]) -> Member:
    owned = tuple(at(text) for text in item["owned"])
    return Member(item["id"], tuple(item["topics"]), owned, 5, item["instance"])
