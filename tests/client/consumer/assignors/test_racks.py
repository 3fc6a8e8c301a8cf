"""Rack-aware assignment (KIP-881): as even as without racks, then as near as that allows, then as sticky."""

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.client.consumer.assignors import (
    Assignments,
    LastAssignment,
    Member,
    RackAwareAssignor,
    ReplicaRacks,
    moved_to_other_racks,
    replica_racks,
)
from barnabas.client.consumer.assignors.racks import racks_matter
from barnabas.client.consumer.assignors.sticky import encode_previous
from barnabas.connection.cluster import Broker, ClusterView, PartitionView, TopicView
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from client.consumer.assignors.groups import (
    COOPERATIVE,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    at,
    check_cooperation,
    check_shares,
    golden,
    group,
    groups,
    holding,
    member_from,
    shown,
)

AWARE: tuple[RackAwareAssignor, ...] = (RANGE, STICKY, COOPERATIVE)
aware = pytest.mark.parametrize("assignor", AWARE, ids=lambda assignor: assignor.name)
sticky = pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=lambda assignor: assignor.name)


def in_racks(members: Sequence[Member], racks: str) -> list[Member]:
    """The members in racks of one letter each, "-" for none."""
    return [member._replace(rack=None if rack == "-" else rack) for member, rack in zip(members, racks, strict=True)]


def replicas(**racks: str) -> dict[str, list[frozenset[str]]]:
    """For `t="ab bc"`: partition 0 of t has replicas in a and b, 1 in b and c."""
    return {topic: [frozenset(each) for each in text.split()] for topic, text in racks.items()}


def sizes(racks: ReplicaRacks) -> dict[str, int]:
    return {topic: len(partitions) for topic, partitions in racks.items()}


def far(shares: Assignments, members: Sequence[Member], racks: ReplicaRacks) -> int:
    """The number of partitions without a replica in their member's rack."""
    rack_of = {member.member_id: member.rack for member in members if member.rack}
    return sum(
        name in rack_of and rack_of[name] not in racks[partition.topic][partition.partition]
        for name, share in shares.items()
        for partition in share
    )


def loads(shares: Assignments) -> list[int]:
    return sorted(map(len, shares.values()))


@st.composite
def groups_in_racks(
    draw: st.DrawFn, *, alike: bool | None = None
) -> tuple[list[Member], dict[str, int], dict[str, list[frozenset[str]]]]:
    members, counts = draw(groups(alike=alike))
    members = in_racks(members, "".join(draw(st.sampled_from("abcd-")) for _ in members))
    places = st.frozensets(st.sampled_from("abc"), max_size=2)
    return members, counts, {topic: draw(st.lists(places, min_size=n, max_size=n)) for topic, n in counts.items()}


# --- range -----------------------------------------------------------------------------------------------------------


def test_range_gives_members_what_is_in_their_rack() -> None:
    racks = replicas(t="b a a b c c")
    members = in_racks(group(["m0", "m1", "m2"], ["t"]), "abc")
    assert shown(RANGE.assign_near(members, sizes(racks), racks)) == {
        "m0": ["t-1", "t-2"],
        "m1": ["t-0", "t-3"],
        "m2": ["t-4", "t-5"],
    }


def test_range_divides_equal_topics_alike_before_it_looks_at_racks() -> None:
    """Number 0 has no rack in common, 1 and 2 have one in both topics."""
    members = in_racks(group(["m0", "m1"], ["s", "t"]), "ab")
    racks = replicas(s="a b a b", t="b b a a")
    assert shown(RANGE.assign_near(members, sizes(racks), racks)) == {
        "m0": ["s-0", "s-2", "t-0", "t-2"],
        "m1": ["s-1", "s-3", "t-1", "t-3"],
    }
    apart = replicas(s="a b a b", t="b a b a")
    assert RANGE.assign_near(members, sizes(apart), apart) == RANGE.assign(members, sizes(apart))


@settings(max_examples=200, deadline=None)
@given(groups_in_racks(), st.data())
def test_range_keeps_equal_topics_together(
    the_group: tuple[list[Member], dict[str, int], ReplicaRacks], data: st.DataObject
) -> None:
    members, _, _ = the_group
    both = [member._replace(topics=("t0", "t1")) for member in members]
    places = st.lists(st.frozensets(st.sampled_from("abc"), min_size=1, max_size=2), min_size=5, max_size=5)
    racks = {"t0": data.draw(places), "t1": data.draw(places)}
    for share in RANGE.assign_near(both, sizes(racks), racks).values():
        numbers = [[each.partition for each in share if each.topic == topic] for topic in racks]
        assert numbers[0] == numbers[1]


@settings(max_examples=200, deadline=None)
@given(groups_in_racks())
def test_range_shares_of_each_topic_stay_as_large(
    the_group: tuple[list[Member], dict[str, int], ReplicaRacks],
) -> None:
    members, counts, racks = the_group
    shares = RANGE.assign_near(members, counts, racks)
    check_shares(shares, members, counts)
    for topic in counts:
        wanting = [member.member_id for member in members if topic in member.topics]
        held = [sum(each.topic == topic for each in shares[name]) for name in wanting]
        assert not held or max(held) - min(held) <= 1


# --- sticky ----------------------------------------------------------------------------------------------------------


@sticky
def test_members_read_in_their_racks_where_they_can(assignor: RackAwareAssignor) -> None:
    racks = replicas(s="a b c a b c", t="b c a")
    members = in_racks(group(["m0", "m1", "m2"], ["s", "t"]), "abc")
    shares = assignor.assign_near(members, sizes(racks), racks)
    assert loads(shares) == [3, 3, 3]
    assert far(shares, members, racks) == 0


def test_evenness_comes_before_racks() -> None:
    racks = replicas(t="a a a a a b")
    members = in_racks(group(["m0", "m1"], ["t"]), "ab")
    shares = STICKY.assign_near(members, sizes(racks), racks)
    assert loads(shares) == [3, 3]
    assert far(shares, members, racks) == 2


def test_what_cannot_be_nearer_stays() -> None:
    """Both are far from 2 and 3, so these stay where they are; only 0 and 1 change places."""
    racks = replicas(t="a b c c")
    members = in_racks(group(["m0", "m1"], ["t"]), "ab")
    settled = holding(members, {"m0": [at("t-1"), at("t-3")], "m1": [at("t-0"), at("t-2")]})
    assert shown(STICKY.assign_near(settled, sizes(racks), racks)) == {"m0": ["t-0", "t-3"], "m1": ["t-1", "t-2"]}


def test_near_partitions_move_through_a_third_member() -> None:
    """m0 has one for b, and b has only those that are in b and c, and c one for a."""
    racks = replicas(t="b bc a")
    members = in_racks(group(["m0", "m1", "m2"], ["t"]), "abc")
    settled = holding(members, {"m0": [at("t-0")], "m1": [at("t-1")], "m2": [at("t-2")]})
    assert shown(STICKY.assign_near(settled, sizes(racks), racks)) == {"m0": ["t-2"], "m1": ["t-0"], "m2": ["t-1"]}


def test_who_has_one_more_is_decided_by_racks() -> None:
    racks = replicas(t="b b a")
    members = in_racks(group(["m0", "m1"], ["t"]), "ab")
    settled = holding(members, {"m0": [at("t-0"), at("t-2")], "m1": [at("t-1")]})
    assert shown(STICKY.assign_near(settled, sizes(racks), racks)) == {"m0": ["t-2"], "m1": ["t-0", "t-1"]}


def test_of_too_many_partitions_a_member_keeps_the_near_ones() -> None:
    """If m0 kept 0 for the start, it would be given 1 for it in the end, as near as 2, which it had."""
    racks = replicas(t="b a a")
    members = in_racks(group(["m0", "m1", "m2"], ["t"]), "abc")
    settled = holding(members, {"m0": [at("t-0"), at("t-2")], "m1": [at("t-1")], "m2": []})
    assert shown(STICKY.assign_near(settled, sizes(racks), racks)) == {"m0": ["t-2"], "m1": ["t-0"], "m2": ["t-1"]}


@settings(max_examples=300, deadline=None)
@given(groups_in_racks(alike=True))
def test_cooperative_gives_what_moves_in_the_next_round(
    the_group: tuple[list[Member], dict[str, int], ReplicaRacks],
) -> None:
    """And moves nothing else then: what is free is exchanged before what members own."""
    members, counts, racks = the_group
    first = COOPERATIVE.assign_near(members, counts, racks)
    second = COOPERATIVE.assign_near(holding(members, first, 4), counts, racks)
    check_shares(second, members, counts)
    assert all(set(share) <= set(second[name]) for name, share in first.items())


@settings(max_examples=300, deadline=None)
@given(groups_in_racks())
def test_sticky_is_as_even_as_without_racks_and_never_farther(
    the_group: tuple[list[Member], dict[str, int], ReplicaRacks],
) -> None:
    members, counts, racks = the_group
    plain = STICKY.assign(members, counts)
    shares = STICKY.assign_near(members, counts, racks)
    check_shares(shares, members, counts)
    assert loads(shares) == loads(plain)
    assert far(shares, members, racks) <= far(plain, members, racks)
    topics = {member.member_id: set(member.topics) for member in members}
    for share in shares.values():
        for taker, wanted in topics.items():
            if any(each.topic in wanted for each in share):
                assert len(shares[taker]) >= len(share) - 1


def nearest(members: Sequence[Member], racks: ReplicaRacks) -> int:
    """The fewest partitions that are far in any even assignment to members that subscribe to all topics: each near one
    is matched with a place of a member, one round of alternating paths after the other."""
    partitions = [TopicPartition(topic, index) for topic, each in racks.items() for index in range(len(each))]
    low, extra = divmod(len(partitions), len(members))
    places = [(member, number) for member in members for number in range(low + (extra > 0))]
    best = 0

    def match(allowed: set[int]) -> int:
        at_place: dict[int, TopicPartition] = {}

        def place(partition: TopicPartition, tried: set[int]) -> bool:
            for index in sorted(allowed - tried):
                member = places[index][0]
                if not member.rack or member.rack in racks[partition.topic][partition.partition]:
                    tried.add(index)
                    if index not in at_place or place(at_place[index], tried):
                        at_place[index] = partition
                        return True
            return False

        return sum(place(partition, set()) for partition in partitions)

    tops = [index for index, (_, number) in enumerate(places) if number == low]
    base = {index for index, (_, number) in enumerate(places) if number < low}
    for chosen in range(1 << len(tops)):
        if chosen.bit_count() == extra or not tops:
            best = max(best, match(base | {top for bit, top in enumerate(tops) if chosen >> bit & 1}))
    return len(partitions) - best


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sticky_is_as_near_as_an_even_assignment_can_be(data: st.DataObject) -> None:
    racks = {
        topic: data.draw(st.lists(st.frozensets(st.sampled_from("abc"), max_size=2), min_size=1, max_size=5))
        for topic in data.draw(st.sets(st.sampled_from(["s", "t"]), min_size=1))
    }
    names = data.draw(st.lists(st.sampled_from("abcd-"), min_size=1, max_size=5))
    members = in_racks(group([f"m{index}" for index in range(len(names))], sorted(racks)), "".join(names))
    assume(racks_matter(members, (each for partitions in racks.values() for each in partitions)))
    everything = data.draw(st.permutations([TopicPartition(t, i) for t, n in sizes(racks).items() for i in range(n)]))
    owned: Assignments = {member.member_id: [] for member in members}
    for partition in everything[: data.draw(st.integers(0, len(everything)))]:
        owned[data.draw(st.sampled_from(sorted(owned)))].append(partition)
    shares = STICKY.assign_near(holding(members, owned), sizes(racks), racks)
    assert far(shares, members, racks) == nearest(members, racks)


@settings(max_examples=200, deadline=None)
@given(groups_in_racks())
def test_what_is_even_and_near_stays_as_it_is(
    the_group: tuple[list[Member], dict[str, int], ReplicaRacks],
) -> None:
    members, counts, racks = the_group
    shares = STICKY.assign_near(members, counts, racks)
    assert STICKY.assign_near(holding(members, shares), counts, racks) == shares


@settings(max_examples=200, deadline=None)
@given(groups_in_racks())
def test_cooperative_never_has_two_owners_and_comes_to_rest(
    the_group: tuple[list[Member], dict[str, int], ReplicaRacks],
) -> None:
    members, counts, racks = the_group
    check_cooperation(lambda each: COOPERATIVE.assign_near(each, counts, racks), members, counts, rebalances=5)


# --- all that are rack-aware -----------------------------------------------------------------------------------------


def test_round_robin_is_not() -> None:
    assert not isinstance(ROUND_ROBIN, RackAwareAssignor)
    assert all(isinstance(assignor, RackAwareAssignor) for assignor in AWARE)


@aware
@settings(max_examples=150, deadline=None)
@given(groups_in_racks(), st.sampled_from(["members", "replicas", "elsewhere", "everywhere", "unknown"]))
def test_nothing_changes_where_racks_make_no_difference(
    assignor: RackAwareAssignor, the_group: tuple[list[Member], dict[str, int], ReplicaRacks], without: str
) -> None:
    members, counts, racks = the_group
    expected = assignor.assign(members, counts)
    if without == "members":
        members = [member._replace(rack=None) for member in members]
    elif without == "replicas":
        racks = {topic: [frozenset()] * count for topic, count in counts.items()}
    elif without == "elsewhere":
        members = [member._replace(rack="z") for member in members]
    elif without == "everywhere":
        racks = {topic: [frozenset("abc")] * count for topic, count in counts.items()}
    else:
        racks = {}
    shares = assignor.assign_near(members, counts, racks)
    assert list(shares.items()) == list(expected.items())


@aware
@settings(max_examples=100, deadline=None)
@given(groups_in_racks())
def test_the_order_of_members_must_not_matter(
    assignor: RackAwareAssignor, the_group: tuple[list[Member], dict[str, int], ReplicaRacks]
) -> None:
    members, counts, racks = the_group
    shares = assignor.assign_near(members, counts, racks)
    assert shares == assignor.assign_near(list(reversed(members)), counts, racks)


@aware
@pytest.mark.parametrize("alike", [True, False])
def test_a_thousand_members_with_ten_thousand_partitions(assignor: RackAwareAssignor, alike: bool) -> None:
    """Within what a heartbeat thread may lose: a leader that takes long is taken for dead."""
    rng = random.Random(4)
    racks = {
        f"t{topic:03}": [frozenset(f"{(topic + index + replica) % 3}" for replica in (0, 1)) for index in range(100)]
        for topic in range(100)
    }
    members = [
        Member(
            f"m{index:04}",
            tuple(racks) if alike else tuple(sorted(rng.sample(sorted(racks), 10))),
            rack=rng.choice("012"),
        )
        for index in range(1000)
    ]
    start = time.process_time()
    shares = assignor.assign_near(members, sizes(racks), racks)
    again = assignor.assign_near(holding(members, shares)[:-1], sizes(racks), racks)
    spent = time.process_time() - start
    check_shares(shares, members, sizes(racks))
    check_shares(again, members[:-1], sizes(racks), whole=not assignor.cooperative)
    assert spent < 5, f"{spent:.1f} s"


# --- Kafka's answers -------------------------------------------------------------------------------------------------


def groups_of_kafka() -> list[tuple[list[Member], dict[str, list[frozenset[str]]], dict[str, Any]]]:
    found = []
    for case in golden("rack_assignments"):
        members = []
        for item in case["members"]:
            member = member_from(item)
            data = encode_previous(LastAssignment(member.owned, member.generation_id))
            members.append(member._replace(rack=item["rack"], user_data=data))
        racks = {topic: [frozenset(each) for each in partitions] for topic, partitions in case["racks"].items()}
        found.append((members, racks, case))
    return found


def test_range_as_kafka() -> None:
    for members, racks, case in groups_of_kafka():
        assert shown(RANGE.assign_near(members, sizes(racks), racks)) == case["range"]


def test_round_robin_as_kafka() -> None:
    for members, racks, case in groups_of_kafka():
        shares = ROUND_ROBIN.assign(members, sizes(racks))
        assert {name: sorted(share) for name, share in shown(shares).items()} == case["roundrobin"]


def test_sticky_is_no_farther_than_kafka() -> None:
    """Where Kafka's is as even. Of what is as near, as much stays."""
    compared = nearer = 0
    stayed = [0, 0]
    for members, racks, case in groups_of_kafka():
        shares = STICKY.assign_near(members, sizes(racks), racks)
        theirs = {name: [at(text) for text in share] for name, share in case["sticky"].items()}
        if not all(member.topics for member in members):
            continue  # Kafka gives partitions to members that subscribe to nothing
        if loads(shares) != loads(theirs):
            assert len({frozenset(member.topics) for member in members}) > 1
            assert loads(shares)[-1] < loads(theirs)[-1]
            continue
        compared += 1
        distances = [far(each, members, racks) for each in (shares, theirs)]
        assert distances[0] <= distances[1]
        nearer += distances[0] < distances[1]
        if distances[0] == distances[1]:
            for index, each in enumerate((shares, theirs)):
                stayed[index] += sum(len(set(member.owned) & set(each[member.member_id])) for member in members)
    assert compared > 150
    assert nearer > 5
    assert stayed[0] >= stayed[1] > 100


# --- racks of replicas -----------------------------------------------------------------------------------------------


def cluster(racks: Mapping[int, str | None], **topics: Sequence[Sequence[int]]) -> ClusterView:
    return ClusterView(
        "id",
        BrokerId(1),
        {number: Broker(BrokerId(number), "h", 1, rack) for number, rack in racks.items()},
        {
            name: TopicView(
                name,
                None,  # type: ignore[arg-type]
                False,
                0,
                {
                    index: PartitionView(index, BrokerId(-1), LeaderEpoch(0), tuple(nodes), (), (), 0)
                    for index, nodes in enumerate(partitions)
                },
            )
            for name, partitions in topics.items()
        },
    )


def test_racks_of_replicas() -> None:
    view = cluster({1: "a", 2: "b", 3: None, 4: ""}, t=[[1, 2], [3, 4], [2, 9]])
    assert replica_racks(view, ["t", "gone"]) == {"t": [{"a", "b"}, frozenset(), {"b"}]}
    assert replica_racks(cluster({3: None}, t=[[3]]), ["t"]) == {}


def test_replicas_that_moved_to_other_racks() -> None:
    brokers = {1: "a", 2: "b", 3: "b"}
    before = replica_racks(cluster(brokers, t=[[1, 2], [2]]), ["t"])
    assert moved_to_other_racks(cluster(brokers, t=[[1, 2], [3]]), before) is None
    assert moved_to_other_racks(cluster(brokers, t=[[1, 2], [1]]), before) == at("t-1")
    assert moved_to_other_racks(cluster({1: "a", 3: "b"}, t=[[1, 2], [2]]), before) is None, "broker 2 is away"
    assert moved_to_other_racks(cluster(brokers), before) is None
