"""New logs are spread over the disks, without a word between brokers."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.directories.placement import DirectoryUse, choose_directory
from barnabas.types import TopicPartition

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


def test_brokers_may_name_their_directories_in_any_order() -> None:
    for number in range(10):
        one = choose_directory(TopicPartition("t", number), 0, [DirectoryUse(A, 0), DirectoryUse(B, 0)])
        two = choose_directory(TopicPartition("t", number), 1, [DirectoryUse(B, 0), DirectoryUse(A, 0)])
        assert (A, B)[one] != (B, A)[two]


def test_partitions_take_turns() -> None:
    disks = [DirectoryUse(A, 0), DirectoryUse(B, 0), DirectoryUse(C, 0)]
    chosen = [choose_directory(TopicPartition("t", number), 0, disks) for number in range(6)]
    assert sorted(chosen[:3]) == sorted(chosen[3:]) == [0, 1, 2]


@given(places=st.integers(2, 4), brokers=st.integers(2, 4), broker=st.integers(0, 3), one_disk=st.booleans())
def test_the_replicas_of_a_broker_are_in_all_places(places: int, brokers: int, broker: int, one_disk: bool) -> None:
    """Brokers take turns in the replicas of partitions."""
    directories = [DirectoryUse(A if one_disk else index, 0) for index in range(places)]
    chosen = Counter(
        choose_directory(TopicPartition("t", number), (broker - number) % brokers, directories) for number in range(120)
    )
    assert min(chosen[place] for place in range(places)) > 120 / places / 2


def test_on_one_disk_directories_take_turns() -> None:
    directories = [DirectoryUse(A, 0), DirectoryUse(A, 5)]
    assert {choose_directory(TopicPartition("t", 0), position, directories) for position in range(2)} == {0, 1}


def test_of_several_directories_on_a_disk_the_emptiest_is_taken() -> None:
    directories = [DirectoryUse(A, 2), DirectoryUse(B, 7), DirectoryUse(A, 1), DirectoryUse(B, 9)]
    assert {choose_directory(TopicPartition("t", 0), position, directories) for position in range(2)} == {1, 2}
    assert choose_directory(TopicPartition("t", 0), None, directories) == 2


def test_what_is_full_or_has_failed_is_left_out_while_another_is_usable() -> None:
    for position in (0, 1, 2, None):
        full = [DirectoryUse(A, 0, is_usable=False), DirectoryUse(B, 5), DirectoryUse(C, 5)]
        assert choose_directory(TopicPartition("t", 0), position, full) in (1, 2)
        same_disk = [DirectoryUse(A, 0, is_usable=False), DirectoryUse(A, 5)]
        assert choose_directory(TopicPartition("t", 0), position, same_disk) == 1
        assert choose_directory(TopicPartition("t", 0), position, full[:1]) == 0
