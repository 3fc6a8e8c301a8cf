"""Partitions balanced over members that subscribe to different topics."""

from hypothesis import given, settings

from barnabas.client.consumer.assignors import Member
from barnabas.client.consumer.assignors.balance import balance
from barnabas.client.consumer.assignors.members import subscribers_of
from client.consumer.assignors.groups import STICKY, at, groups, holding


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


@settings(max_examples=100, deadline=None)
@given(groups())
def test_an_even_assignment_stays_as_it_is(the_group: tuple[list[Member], dict[str, int]]) -> None:
    members, counts = the_group
    shares = STICKY.assign(members, counts)
    assert STICKY.assign(holding(members, shares), counts) == shares


def test_a_partition_moves_through_a_third_member() -> None:
    """a and b have no topic in common; c takes one of a's partitions, and gives one of its own to b."""
    members = [Member("a", ("s",)), Member("b", ("t",)), Member("c", ("s", "t"))]
    owners = {at(f"s-{index}"): "a" for index in range(3)} | {at(f"t-{index}"): "c" for index in range(2)}
    counts = {"s": 3, "t": 2}
    subscribers = subscribers_of(members, counts)
    shares = balance(members, subscribers, counts, owners)
    assert {name: len(share) for name, share in shares.items()} == {"a": 2, "b": 1, "c": 2}
    assert {partition.topic for partition in shares["b"]} == {"t"}
    assert set(shares["a"]) < {partition for partition, owner in owners.items() if owner == "a"}, "no more than it must"


def test_topics_with_few_subscribers_are_given_away_first() -> None:
    members = [Member("a", ("s", "t")), Member("b", ("t",))]
    counts = {"s": 2, "t": 2}
    shares = balance(members, subscribers_of(members, counts), counts, {})
    assert shares == {"a": [at("s-0"), at("s-1")], "b": [at("t-0"), at("t-1")]}
