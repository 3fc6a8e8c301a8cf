"""Metadata requests of a client of a simulated cluster."""

import pytest

from barnabas.errors import InvalidTopic, TopicNotFound
from simulation.cluster import SingleClientCluster


def test_a_topic_is_known_after_one_answer() -> None:
    cluster = SingleClientCluster(nodes=3)
    cluster.topics["t"] = {0: 1, 1: 2, 2: 3}
    topic = cluster.result(cluster.network_client.topic("t", 5))
    assert {p.leader for p in topic.partitions.values()} == {1, 2, 3}
    assert cluster.count(3) == 1
    assert cluster.network_client.topic("t", 5).done, "the second time nothing is asked"


def test_a_topic_that_appears_late() -> None:
    cluster = SingleClientCluster()
    promise = cluster.network_client.topic("t", 60)
    cluster.run(seconds=5)
    assert 5 <= cluster.count(3) <= 30
    cluster.topics["t"] = {0: 1}
    assert cluster.result(promise).name == "t"


def test_a_topic_that_does_not_appear() -> None:
    cluster = SingleClientCluster()
    with pytest.raises(TopicNotFound, match="topic 't' does not exist"):
        cluster.result(cluster.network_client.topic("t", 3))
    assert 1003 <= cluster.now < 1003.1


def test_a_topic_that_cannot_exist() -> None:
    cluster = SingleClientCluster()
    cluster.topic_errors["a b"] = InvalidTopic.code
    with pytest.raises(InvalidTopic, match="'a b'"):
        cluster.result(cluster.network_client.topic("a b", 60))
    assert cluster.now < 1001


def test_metadata_is_renewed_with_age_and_when_it_was_wrong() -> None:
    cluster = SingleClientCluster(metadata_max_age_s=100)
    cluster.topics["t"] = {0: 1}
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.run(seconds=350)
    assert cluster.count(3) == 4
    cluster.topics["t"] = {0: 1, 1: 1}
    cluster.result(cluster.network_client.refresh_metadata())
    assert len(cluster.network_client.metadata.cluster.topics["t"].partitions) == 2
