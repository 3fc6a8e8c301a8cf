"""New logs are spread over the disks, without a word between brokers."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.directories.placement import DirectoryUse, choose_directory
from barnabas.metadata.image import PartitionImage
from barnabas.replication.replica_manager import replica_position
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

TP = TopicPartition("t", 0)
A, B, C = 8, 3, 5
"""Devices."""


@given(
    disks=st.integers(2, 4),
    each=st.integers(1, 3),
    replicas=st.integers(2, 5),
    topic=st.text(min_size=1),
    partition=st.integers(0, 10_000),
    logs=st.data(),
)
def test_replicas_are_on_as_many_disks_as_there_are(
    disks: int, each: int, replicas: int, topic: str, partition: int, logs: st.DataObject
) -> None:
    used = set()
    for position in range(replicas):
        counts = logs.draw(st.lists(st.integers(0, 9), min_size=disks * each, max_size=disks * each))
        directories = [DirectoryUse(index % disks, count) for index, count in enumerate(counts)]
        used.add(choose_directory(TopicPartition(topic, partition), position, directories) % disks)
    assert len(used) == min(disks, replicas)


@given(
    disks=st.integers(2, 4),
    topic=st.text(min_size=1),
    partition=st.integers(0, 10_000),
    growth=st.lists(st.integers(1, 2), min_size=1, max_size=3),
)
def test_replicas_that_are_added_go_to_the_disks_that_have_none(
    disks: int, topic: str, partition: int, growth: list[int]
) -> None:
    directories = [DirectoryUse(index, 0) for index in range(disks)]
    used: Counter[int] = Counter()
    replicas: tuple[BrokerId, ...] = ()
    for count in (2, *growth):
        adding = tuple(map(BrokerId, range(len(replicas), len(replicas) + count)))
        replicas = (*adding, *replicas)  # the added ones are preferred as leaders
        assigned = PartitionImage(replicas[-1], LeaderEpoch(0), replicas, replicas, adding_replicas=adding)
        for broker in adding:
            position = replica_position(assigned, broker)
            used[choose_directory(TopicPartition(topic, partition), position, directories)] += 1
        assert len(used) == min(disks, len(replicas))


def test_brokers_may_name_their_directories_in_any_order() -> None:
    for number in range(10):
        one = choose_directory(TopicPartition("t", number), 0, [DirectoryUse(A, 0), DirectoryUse(B, 0)])
        two = choose_directory(TopicPartition("t", number), 1, [DirectoryUse(B, 0), DirectoryUse(A, 0)])
        assert (A, B)[one] != (B, A)[two]


def chosen_places(
    topic: str, partitions: int, brokers: int, replicas: int, places: int, one_disk: bool, rng: random.Random
) -> list[Counter[int]]:
    """How many replicas of each broker are in each place. Brokers take turns as first replicas, in an order that
    changes when all have had theirs."""
    directories = [DirectoryUse(A if one_disk else index, 0) for index in range(places)]
    order, found = list(range(brokers)), [Counter[int]() for _ in range(brokers)]
    for number in range(partitions):
        if number % brokers == 0:
            rng.shuffle(order)
        for position in range(replicas):
            directory = choose_directory(TopicPartition(topic, number), position, directories)
            found[order[(number + position) % brokers]][directory] += 1
    return found


@given(
    topic=st.text(min_size=1),
    brokers=st.integers(2, 4),
    places=st.integers(2, 4),
    one_disk=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
def test_what_each_broker_has_of_a_few_partitions_is_in_several_places(
    topic: str, brokers: int, places: int, one_disk: bool, rng: random.Random
) -> None:
    for found in chosen_places(topic, brokers, brokers, brokers, places, one_disk, rng):
        assert len(found) == min(brokers, places) or (brokers > 3 and len(found) > 1)


@given(places=st.integers(2, 4), brokers=st.integers(2, 4), broker=st.integers(0, 3), one_disk=st.booleans())
def test_brokers_that_take_turns_as_first_replicas_have_theirs_in_all_places(
    places: int, brokers: int, broker: int, one_disk: bool
) -> None:
    directories = [DirectoryUse(A if one_disk else index, 0) for index in range(places)]
    found = Counter(
        choose_directory(TopicPartition("t", number), (broker - number) % brokers, directories) for number in range(120)
    )
    assert min(found[place] for place in range(places)) > 120 / places / 2


@given(
    brokers=st.integers(2, 4),
    fewer=st.integers(0, 2),
    places=st.integers(2, 4),
    one_disk=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
def test_the_replicas_of_a_broker_are_in_all_places(
    brokers: int, fewer: int, places: int, one_disk: bool, rng: random.Random
) -> None:
    replicas = max(2, brokers - fewer)
    for found in chosen_places("t", 240, brokers, replicas, places, one_disk, rng):
        assert min(found[place] for place in range(places)) > found.total() / places / 4


def test_on_one_disk_directories_take_turns() -> None:
    directories = [DirectoryUse(A, 0), DirectoryUse(A, 5)]
    assert {choose_directory(TP, position, directories) for position in range(2)} == {0, 1}


def test_of_several_directories_on_a_disk_the_emptiest_is_taken() -> None:
    directories = [DirectoryUse(A, 2), DirectoryUse(B, 7), DirectoryUse(A, 1), DirectoryUse(B, 9)]
    assert {choose_directory(TP, position, directories) for position in range(2)} == {1, 2}
    assert choose_directory(TP, None, directories) == 2


def test_what_is_full_or_has_failed_is_left_out_while_another_is_usable() -> None:
    for position in (0, 1, 2, None):
        full = [DirectoryUse(A, 0, is_usable=False), DirectoryUse(B, 5), DirectoryUse(C, 5)]
        assert choose_directory(TP, position, full) in (1, 2)
        same_disk = [DirectoryUse(A, 0, is_usable=False), DirectoryUse(A, 5)]
        assert choose_directory(TP, position, same_disk) == 1
        assert choose_directory(TP, position, full[:1]) == 0


@given(topic=st.text(min_size=1), places=st.integers(2, 4), position=st.integers(0, 3))
def test_a_broker_with_the_same_position_in_all_partitions_has_them_evenly(
    topic: str, places: int, position: int
) -> None:
    directories = [DirectoryUse(index, 0) for index in range(places)]
    found = Counter(
        choose_directory(TopicPartition(topic, partition), position, directories) for partition in range(3 * places)
    )
    assert set(found.values()) == {3}
