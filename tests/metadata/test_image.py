"""Images of the cluster: lookups by name and id, internal topics, collisions."""

from uuid import UUID

from metadata.images import PARTITION, image, topic


def test_looking_things_up() -> None:
    cluster = image(topic("a", 1, 2), topic("b", 2))
    assert cluster.topic_by_id(UUID(int=2)) == topic("b", 2)
    assert cluster.topic_by_id(UUID(int=3)) is None
    assert cluster.partition("a", 1) == PARTITION
    assert cluster.partition("a", 2) is None
    assert cluster.partition("a", -1) is None
    assert cluster.partition("c", 0) is None
    assert cluster.topic_config("a") == {}
    assert cluster.broker_config("") == {}
    assert (cluster.is_active(1), cluster.is_active(2), cluster.is_active(3)) == (True, False, False)
    assert cluster.partition_count == 3
    assert PARTITION.preferred_leader == 1
    assert topic("a").replication_factor == 2


def test_replicas_that_a_reassignment_removes_do_not_count_for_the_replication_factor() -> None:
    moving = PARTITION._replace(replicas=(1, 3, 2), adding_replicas=(3,), removing_replicas=(2,))
    assert topic("a")._replace(partitions=(moving,)).replication_factor == 2


def test_internal_topics_and_collisions() -> None:
    assert topic("__consumer_offsets").is_internal
    assert not topic("__my_own").is_internal
    assert image(topic("a.b", 1), topic("c", 2)).collisions == {"a_b": "a.b"}
