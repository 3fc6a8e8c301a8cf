from barnabas.client.assignors import assign_range
from barnabas.types import TopicPartition


def numbers(share: list[TopicPartition]) -> list[int]:
    return [partition for _, partition in share]


def test_the_first_members_get_one_more() -> None:
    shares = assign_range({"c": ["t"], "a": ["t"], "b": ["t"]}, {"t": 7})
    assert {member: numbers(share) for member, share in shares.items()} == {
        "a": [0, 1, 2],
        "b": [3, 4],
        "c": [5, 6],
    }


def test_each_topic_is_divided_by_itself() -> None:
    shares = assign_range({"a": ["t", "u"], "b": ["t"]}, {"t": 2, "u": 3})
    assert shares["a"] == [TopicPartition("t", 0), *(TopicPartition("u", p) for p in range(3))]
    assert shares["b"] == [TopicPartition("t", 1)]


def test_more_members_than_partitions_and_topics_that_are_not_there() -> None:
    shares = assign_range({"a": ["t", "gone"], "b": ["t"], "c": ["t"]}, {"t": 2})
    assert [numbers(shares[member]) for member in "abc"] == [[0], [1], []]
