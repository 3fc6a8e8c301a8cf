"""The operations for topics: how they are cut into transactions, and in which order they come."""

from uuid import UUID

import pytest

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from barnabas.metadata.image import MetadataImage, PartitionImage, TopicImage
from barnabas.registry.zookeeper.session import Create, Operation, Set
from barnabas.registry.zookeeper.topic_nodes import batches, topic_operations
from barnabas.registry.zookeeper.znodes import Touched

PARTITION = PartitionImage(1, 0, (1,), (1,), 0)


def image(*partitions: PartitionImage) -> MetadataImage:
    return MetadataImage("id", topics={"t": TopicImage("t", UUID(int=1), partitions)} if partitions else {})


def test_batches_hold_what_fits() -> None:
    operations: list[Operation] = [Set(f"/{number}", b"x" * 200_000) for number in range(5)]
    assert [len(batch) for batch in batches(operations)] == [2, 2, 1]
    assert [operation for batch in batches(operations) for operation in batch] == operations
    assert [len(batch) for batch in batches([Set("/a", b"x" * 900_000), Set("/b", b"")])] == [1, 1]
    assert batches([]) == [[]]


def test_only_changed_partitions_are_written() -> None:
    before = image(PARTITION, PARTITION)
    after = image(PARTITION, PARTITION._replace(leader=2))
    found = topic_operations(before, after, Touched(topics=frozenset("t")), lambda _: True)
    assert [each.path for each in found.decisive] == ["/brokers/topics/t/partitions/1/state"]
    assert [found.prepared, found.descriptive, found.left_over, found.removed] == [[], [], [], []]


def test_other_replicas_are_told_to_others() -> None:
    after = image(PARTITION._replace(replicas=(1, 2)))
    found = topic_operations(image(PARTITION), after, Touched(topics=frozenset("t")), lambda _: True)
    assert [each.path for each in found.descriptive] == ["/brokers/topics/t"]


def test_the_marker_comes_last() -> None:
    found = topic_operations(image(), image(PARTITION), Touched(topics=frozenset("t")), lambda _: False)
    assert all(isinstance(each, Create) for each in found.prepared)
    assert found.decisive[0].path == "/brokers/topics/t/partitions"
    assert found.decisive[1].path == "/config/topics/t", "Kafka's tools look for it"
