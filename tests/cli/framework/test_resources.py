"""Topics, partitions and brokers that a command line names."""

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.framework.output import CommandFailed
from barnabas.cli.framework.resources import (
    broker_ids,
    check_partitions,
    check_topic_name,
    chosen_names,
    chosen_partitions,
    chosen_topics,
    name_pattern,
    plural,
    split_partitions,
)
from barnabas.errors import UnknownTopicOrPartition, UsageError
from barnabas.types import TopicPartition


class FakeAdmin:
    """Topics with their numbers of partitions; one of them is internal."""

    COUNTS = {"orders": 3, "orders-paid": 1, "__offsets": 2}

    def list_topics(self, *, internal: bool = False) -> list[Any]:
        return [self.view(name) for name in self.COUNTS if internal or name != "__offsets"]

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {name: self.view(name) for name in names}

    def view(self, name: str) -> Any:
        if name not in self.COUNTS:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return SimpleNamespace(name=name, partitions=dict.fromkeys(range(self.COUNTS[name])))

    def describe_cluster(self, *, include_fenced: bool = False) -> Any:
        return SimpleNamespace(brokers={3: None, 1: None} | ({4: None} if include_fenced else {}))


ADMIN: Any = FakeAdmin()


def test_patterns_are_for_the_beginnings_of_names() -> None:
    there = ["orders", "orders-paid", "paid"]
    for asked, found in (
        (["^orders"], ["orders", "orders-paid"]),
        (["^orders$"], ["orders"]),
        (["^(orders|paid)$", "^p"], ["orders", "paid"]),
        (["paid", "^p", "no-such"], ["paid", "no-such"]),
    ):
        assert chosen_names(asked, there, "topic") == found
    with pytest.raises(CommandFailed, match="no topic matches ^x; there are 3 topics".replace("^", r"\^")):
        chosen_names(["^x"], there, "topic")
    with pytest.raises(CommandFailed, match=r"there is 1 topic$"):
        chosen_names(["^x"], ["paid"], "topic")
    with pytest.raises(UsageError, match=r"regular expression '\^\('"):
        name_pattern("^(")


@pytest.mark.parametrize("text", ["orders", "__offsets", "a" * 249, "^or", "orders:0,2-3", "^a:0"])
def test_what_may_name_topics(text: str) -> None:
    check_partitions(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "the empty string is not allowed"),
        (":0", "the empty string is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics"),
        ("a" * 250, "has 250 characters, and the name of a topic at most 249"),
        ("a:b:c", "write numbers and ranges"),
        ("^(", "missing ), unterminated subpattern"),
    ],
)
def test_what_cannot_name_topics_is_refused_by_its_rule(text: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_partitions(text)
    assert rule in str(caught.value)


@pytest.mark.parametrize("text", ["^a", "a:0"])
def test_the_name_of_one_topic_is_no_pattern_and_has_no_partitions(text: str) -> None:
    with pytest.raises(UsageError, match="contains one or more characters"):
        check_topic_name(text)


def test_topics_without_names_are_all_but_internal_ones() -> None:
    def named(*asked: str) -> list[str]:
        return [view.name for view in chosen_topics(ADMIN, asked)]

    assert named() == ["orders", "orders-paid"]
    assert named("__offsets", "orders", "orders") == ["__offsets", "orders"]
    assert named("^__", "orders") == ["__offsets", "orders"]
    with pytest.raises(UnknownTopicOrPartition, match="'no-such'"):
        named("^orders", "no-such")


def test_partitions_of_names_and_patterns() -> None:
    assert chosen_partitions(ADMIN, ["orders:0,2", "orders:2", "^orders-"]) == [
        TopicPartition("orders", 0),
        TopicPartition("orders", 2),
        TopicPartition("orders-paid", 0),
    ]
    with pytest.raises(UnknownTopicOrPartition, match="topic 'orders' has partitions 0 to 2, not 3"):
        chosen_partitions(ADMIN, ["orders:1-3"])
    assert split_partitions("^a:b") == ("^a:b", None), "a pattern may have a colon"


def test_brokers_are_those_of_the_cluster() -> None:
    assert broker_ids(ADMIN, None) == [1, 3]
    assert broker_ids(ADMIN, [3, 3]) == [3]
    with pytest.raises(CommandFailed, match="broker 2 is not in the cluster; its brokers are 1, 3"):
        broker_ids(ADMIN, [2])
    with pytest.raises(CommandFailed, match="broker 4 is not in the cluster"):
        broker_ids(ADMIN, [4])
    assert broker_ids(ADMIN, [4], include_fenced=True) == [4]


def test_counts_of_things() -> None:
    assert [plural(count, "topic") for count in (0, 1, 2)] == ["no topics", "1 topic", "2 topics"]
