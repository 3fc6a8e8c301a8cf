"""Assignors: the worked examples, what must hold for every group, Kafka's own answers, and large groups."""

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
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
    assignor_for,
    members_of,
)
from barnabas.client.consumer.assignors.sticky import decode_previous, encode_previous
from barnabas.client.consumer.group.consumer_protocol import Subscription, encode_subscription
from barnabas.errors import UsageError
from barnabas.protocol.messages.join_group import JoinGroupResponseMember
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


# --- worked examples --------------------------------------------------------------------------------------------------


def test_range_of_ten_over_three() -> None:
    shares = RANGE.assign(group(["c0", "c1", "c2"], ["t"]), {"t": 10})
    assert {name: [topic_partition.partition for topic_partition in share] for name, share in shares.items()} == {
        "c0": [0, 1, 2, 3],
        "c1": [4, 5, 6],
        "c2": [7, 8, 9],
    }


def test_range_of_two_topics() -> None:
    assert shown(RANGE.assign(group(["c0", "c1"], ["t0", "t1"]), {"t0": 3, "t1": 3})) == {
        "c0": ["t0-0", "t0-1", "t1-0", "t1-1"],
        "c1": ["t0-2", "t1-2"],
    }


def test_round_robin_of_two_topics() -> None:
    assert shown(ROUND_ROBIN.assign(group(["c0", "c1"], ["t0", "t1"]), {"t0": 3, "t1": 3})) == {
        "c0": ["t0-0", "t0-2", "t1-1"],
        "c1": ["t0-1", "t1-0", "t1-2"],
    }


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=["sticky", "cooperative"])
def test_sticky_keeps_what_members_hold_when_one_leaves(assignor: Assignor) -> None:
    members = group(["c0", "c1", "c2"], ["t0", "t1"])
    before = assignor.assign(members, {"t0": 5, "t1": 4})
    after = assignor.assign(holding(members, before)[:2], {"t0": 5, "t1": 4})
    for name in ("c0", "c1"):
        assert set(before[name]) <= set(after[name])
    assert sorted(len(share) for share in after.values()) == [4, 5]


@by_name
def test_more_members_than_partitions_and_topics_that_are_not_there(assignor: Assignor) -> None:
    members = [*group(["b", "c"], ["t"]), Member("a", ("t", "gone"))]
    assert shown(assignor.assign(members, {"t": 2})) == {"a": ["t-0"], "b": ["t-1"], "c": []}
    assert assignor.assign(members, {}) == {"a": [], "b": [], "c": []}
    assert assignor.assign([], {"t": 3}) == {}


def test_static_members_come_first_by_their_instance_ids() -> None:
    members = [
        Member("a", ("t",)),
        Member("z", ("t",), group_instance_id="i2"),
        Member("y", ("t",), group_instance_id="i9"),
    ]
    assert shown(RANGE.assign(members, {"t": 3})) == {"z": ["t-0"], "y": ["t-1"], "a": ["t-2"]}
    assert shown(ROUND_ROBIN.assign(members, {"t": 3})) == {"z": ["t-0"], "y": ["t-1"], "a": ["t-2"]}


def test_cooperative_gives_what_moves_in_the_next_round_only() -> None:
    members = group(["c0", "c1"], ["t"])
    before = COOPERATIVE.assign(members[:1], {"t": 4})
    joining = holding(members, before)
    first = COOPERATIVE.assign(joining, {"t": 4})
    assert len(first["c0"]) == 2
    assert first["c1"] == []
    second = COOPERATIVE.assign(holding(members, first, 2), {"t": 4})
    assert second["c0"] == first["c0"]
    assert len(second["c1"]) == 2


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=["sticky", "cooperative"])
def test_the_later_generation_is_right(assignor: Assignor) -> None:
    claim = (at("t-0"), at("t-1"))
    members = [
        Member(name, ("t",), claim, generation, user_data=encode_previous(LastAssignment(claim, generation)))
        for name, generation in (("old", 3), ("new", 4), ("other", -1))
    ]
    members[2] = Member("other", ("t",))
    shares = assignor.assign(members, {"t": 6})
    expected = {"old": 2, "new": 2, "other": 2}
    if assignor is STICKY:
        assert {name: len(share) for name, share in shares.items()} == expected
        assert shares["new"] == list(claim)
    else:
        # the old member may believe that it still has them: nobody gets them before it has joined again
        assert not set(claim) & {topic_partition for share in shares.values() for topic_partition in share}


def test_two_claims_of_one_generation_are_both_void() -> None:
    claim = (at("t-0"), at("t-1"), at("t-2"))
    members = [Member(name, ("t",), claim, 5) for name in ("a", "b")]
    shares = COOPERATIVE.assign(members, {"t": 4})
    assert shown(shares) in ({"a": ["t-3"], "b": []}, {"a": [], "b": ["t-3"]})


def test_cooperative_generation_from_user_data() -> None:
    members = [
        Member("java", ("t",), (at("t-0"), at("t-1")), user_data=b"\0\0\0\x07"),
        Member("go", ("t",), (at("t-0"), at("t-1")), user_data=encode_previous(LastAssignment((), 6))),
    ]
    owned = [member._replace(owned=()) for member in members]
    # on equal footing they would share; as it is the later generation keeps both, and nobody else gets them
    assert shown(COOPERATIVE.assign(members, {"t": 2})) == {"java": [], "go": []}
    sticky = COOPERATIVE.assign([members[0], owned[1]], {"t": 2})
    assert shown(sticky) == {"java": ["t-0"], "go": []}


# --- what always holds ------------------------------------------------------------------------------------------------

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


@by_name
@settings(max_examples=150, deadline=None)
@given(groups())
def test_every_partition_has_one_owner(assignor: Assignor, the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    shares = assignor.assign(members, counts)
    check_shares(shares, members, counts, whole=not assignor.cooperative)
    assert shares == assignor.assign(list(reversed(members)), counts), "the order of the answer must not matter"


@settings(max_examples=200, deadline=None)
@given(groups())
def test_cooperative_never_has_two_owners_and_comes_to_rest(the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    for generation in range(4, 8):
        shares = COOPERATIVE.assign(members, counts)
        for member in members:
            others = {topic_partition for other in members if other is not member for topic_partition in other.owned}
            assert not others & set(shares[member.member_id]), "given before it was given up"
        after = holding(members, shares, generation)
        if [member.owned for member in after] == [member.owned for member in members]:
            break
        members = after
    check_shares(shares, members, counts)


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


@settings(max_examples=200, deadline=None)
@given(groups())
def test_sticky_is_as_even_as_subscriptions_allow(the_group: tuple[list[Member], dict[str, int]]) -> None:
    """Nobody could hand a partition to somebody who has two fewer, not even through others."""
    members, counts = the_group
    shares = STICKY.assign(members, counts)
    wants = {member.member_id: set(member.topics) for member in members}
    for start, share in shares.items():
        reach, todo = {start}, [start]
        while todo:
            topics = {topic_partition.topic for topic_partition in shares[todo.pop()]}
            for name, wanted in wants.items():
                if name not in reach and topics & wanted:
                    reach.add(name)
                    todo.append(name)
        assert all(len(shares[name]) >= len(share) - 1 for name in reach)


def rightful(members: Sequence[Member], counts: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """What each member could keep, where no two claim the same."""
    return {
        member.member_id: {
            owned
            for owned in member.owned
            if owned.topic in member.topics and owned.partition < counts.get(owned.topic, 0)
        }
        for member in members
    }


@settings(max_examples=200, deadline=None)
@given(groups(alike=True))
def test_sticky_moves_no_more_than_evenness_asks_for(the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    shares = STICKY.assign(members, counts)
    owned = rightful(members, counts)
    low, extra = divmod(sum(len(share) for share in shares.values()), len(members))
    over = sum(len(held) > low for held in owned.values())
    most = sum(min(len(held), low) for held in owned.values()) + min(over, extra)
    assert sum(len(owned[name] & set(share)) for name, share in shares.items()) == most


@settings(max_examples=100, deadline=None)
@given(groups())
def test_an_even_assignment_stays_as_it_is(the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    shares = STICKY.assign(members, counts)
    assert STICKY.assign(holding(members, shares), counts) == shares


@settings(max_examples=100, deadline=None)
@given(groups(), st.integers(0, 9))
def test_range_keeps_equal_topics_together(the_group: tuple[list[Member], dict[str, int]], count: int) -> None:
    members, _ = the_group
    both = [member._replace(topics=("t0", "t1")) for member in members]
    for share in RANGE.assign(both, {"t0": count, "t1": count}).values():
        numbers = [
            [topic_partition.partition for topic_partition in share if topic_partition.topic == topic]
            for topic in ("t0", "t1")
        ]
        assert numbers[0] == numbers[1]


@settings(max_examples=60, deadline=None)
@given(groups(alike=True))
def test_one_more_member_takes_only_its_share(the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    settled = holding(members, STICKY.assign(members, counts))
    assume("new" not in {member.member_id for member in members})
    shares = STICKY.assign([*settled, Member("new", members[0].topics)], counts)
    had = {topic_partition: member.member_id for member in settled for topic_partition in member.owned}
    moved = [
        topic_partition
        for name, share in shares.items()
        for topic_partition in share
        if had.get(topic_partition) != name
    ]
    assert sorted(moved) == sorted(shares["new"])


# --- Kafka's answers --------------------------------------------------------------------------------------------------


def golden() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "assignments.json").read_text())
    return cases


def member_from(item: dict[str, Any]) -> Member:
    owned = tuple(at(text) for text in item["owned"])
    return Member(item["id"], tuple(item["topics"]), owned, 5, item["instance"])


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN], ids=["range", "roundrobin"])
def test_as_kafka(assignor: Assignor) -> None:
    for case in golden():
        shares = assignor.assign([member_from(item) for item in case["members"]], case["counts"])
        assert {name: sorted(share) for name, share in shown(shares).items()} == {
            name: sorted(share) for name, share in case[assignor.name].items()
        }


def test_sticky_as_kafka() -> None:
    """From scratch the same; with owners as much is kept, and what is given away at once is as much."""
    scratch = owned = 0
    for case in golden():
        members = [member_from(item) for item in case["members"]]
        if len({frozenset(member.topics) for member in members}) > 1:
            continue  # Kafka takes its other way there, which is less even than ours
        shares = COOPERATIVE.assign(members, case["counts"])
        theirs = {name: sorted(at(text) for text in share) for name, share in case["cooperative-sticky"].items()}
        if not any(member.owned for member in members):
            scratch += 1
            assert shares == theirs
        else:
            owned += 1
            for each in (shares, theirs):
                check_shares(each, members, case["counts"], whole=False)
            kept = [
                sum(len(set(member.owned) & set(each[member.member_id])) for member in members)
                for each in (shares, theirs)
            ]
            assert kept[0] == kept[1]
            assert sum(map(len, shares.values())) == sum(map(len, theirs.values()))
    assert scratch > 20
    assert owned > 20


# --- large groups -----------------------------------------------------------------------------------------------------


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


# --- the wire ---------------------------------------------------------------------------------------------------------


def test_user_data() -> None:
    last = LastAssignment((at("b-1"), at("a-2"), at("a-0")), 7)
    assert RANGE.user_data(last) is ROUND_ROBIN.user_data(last) is STICKY.user_data(None) is None
    assert STICKY.user_data(last) == (
        b"\0\0\0\2\0\1a\0\0\0\2\0\0\0\0\0\0\0\2\0\1b\0\0\0\1\0\0\0\1\0\0\0\7"
    )  # fmt: skip
    assert COOPERATIVE.user_data(last) == b"\0\0\0\7"
    assert COOPERATIVE.user_data(None) == b"\xff\xff\xff\xff"
    assert decode_previous(STICKY.user_data(last)) == LastAssignment((at("a-0"), at("a-2"), at("b-1")), 7)
    without_generation = encode_previous(last)[:-4]
    assert decode_previous(without_generation).generation_id == -1
    assert decode_previous(b"") == decode_previous(None) == LastAssignment((), -1)


@given(st.binary(max_size=60))
def test_user_data_of_others_does_no_harm(data: bytes) -> None:
    decode_previous(data)
    COOPERATIVE.assign([Member("a", ("t",), user_data=data)], {"t": 1})
    STICKY.assign([Member("a", ("t",), user_data=data)], {"t": 1})


def test_members_of_a_join_answer() -> None:
    told = Subscription(("t", "s"), (at("t-1"),), 4, "rack", b"data")
    joined = JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=encode_subscription(told))
    assert members_of([joined]) == [Member("m", ("s", "t"), (at("t-1"),), 4, "i", "rack", b"data")]


# --- assignors of the caller's own ------------------------------------------------------------------------------------


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
