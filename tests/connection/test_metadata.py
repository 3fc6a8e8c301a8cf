"""The metadata of a cluster: topics to request, responses of brokers that know less, leaders that move."""

from typing import Any
from uuid import UUID

from barnabas.connection.cluster import Broker
from barnabas.connection.metadata import Metadata
from barnabas.errors import InvalidTopic, LeaderNotAvailable, TopicNotFound
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.types import BrokerId, TopicPartition
from simulation.cluster import SingleClientCluster


def test_an_older_leader_epoch_does_not_win() -> None:
    cluster = SingleClientCluster(nodes=2)
    cluster.topics["t"], cluster.log("t", 0).leader_epoch = {0: 2}, 5
    cluster.result(cluster.network_client.topic("t", 5))
    cluster.topics["t"], cluster.log("t", 0).leader_epoch = {0: 1}, 4
    cluster.result(cluster.network_client.refresh_metadata())
    assert cluster.network_client.metadata.cluster.topics["t"].partitions[0].leader == 2
    cluster.topics["t"], cluster.log("t", 0).leader_epoch = {0: 1}, 6
    cluster.result(cluster.network_client.refresh_metadata())
    assert cluster.network_client.metadata.cluster.topics["t"].partitions[0].leader == 1


def responded(*topics: Any, brokers: int = 2) -> MetadataResponse:
    listed = [MetadataResponseBroker(node_id=number, host="host", port=number) for number in range(1, 1 + brokers)]
    return MetadataResponse(brokers=listed, controller_id=1, cluster_id="c", topics=list(topics))


def topic(name: str, leader: int = 1, epoch: int = 0, *, topic_id: int = 1, error_code: int = 0) -> Any:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponseTopic(
        name=name, topic_id=UUID(int=topic_id), error_code=error_code, partitions=[] if error_code else [partition]
    )


def test_new_topics_alone_are_requested_while_the_others_are_fresh() -> None:
    metadata = Metadata(max_age_s=100)
    metadata.add_topics(["a"])
    request, asked = metadata.request(0.0)
    assert ([each.name for each in request.topics], asked) == (["a"], frozenset("a"))
    metadata.update(responded(topic("a")), asked, 0.0)
    metadata.add_topics(["a", "b"])
    assert metadata.has_new_topics
    assert metadata.request(99.0)[1] == frozenset("b")
    metadata.update(responded(topic("b", topic_id=2)), frozenset("b"), 99.0)
    assert set(metadata.cluster.topics) == {"a", "b"}
    assert metadata.request(metadata.expires_at())[1] == frozenset("ab")


def test_new_topics_do_not_keep_the_others_from_getting_old() -> None:
    metadata = Metadata(max_age_s=100)
    metadata.add_topics(["a"])
    metadata.update(responded(topic("a")), metadata.request(0.0)[1], 0.0)
    for number, now in enumerate((60.0, 99.0)):
        metadata.add_topics([f"new-{number}"])
        metadata.update(responded(topic(f"new-{number}", topic_id=2 + number)), metadata.request(now)[1], now)
    assert metadata.expires_at() == 100
    metadata.add_topics(["c"])
    _, asked = metadata.request(120.0)
    assert asked == {"a", "new-0", "new-1", "c"}
    metadata.add_topics(["added while the request is in flight"])
    metadata.update(responded(topic("a")), asked, 120.0)
    assert metadata.expires_at() == 220


def test_a_topic_that_a_response_lacks_is_gone_if_it_was_requested() -> None:
    metadata = Metadata()
    metadata.update(responded(topic("a"), topic("b", topic_id=2)), None, 0.0)
    metadata.update(responded(), frozenset("a"), 1.0)
    assert metadata.topic("a") is None
    assert metadata.topic("b") is not None
    assert isinstance(metadata.partition_error(TopicPartition("a", 0)), TopicNotFound)
    assert "partitions 0 to 0, there is no 3" in str(metadata.partition_error(TopicPartition("b", 3)))


def test_a_leader_that_another_response_names_counts_if_its_epoch_is_newer() -> None:
    metadata = Metadata()
    metadata.update(responded(topic("a", leader=1, epoch=4)), None, 0.0)
    partition = TopicPartition("a", 0)
    assert not metadata.update_leader(partition, 2, 4)
    assert not metadata.update_leader(partition, 3, 5), "no address of that broker is known"
    assert metadata.update_leader(partition, 3, 5, Broker(BrokerId(3), "host", 3, None))
    assert metadata.leader(partition) == 3
    metadata.rebootstrap()
    assert metadata.leader(partition) == -1
    assert metadata.topic("a") is not None


def test_a_topic_created_again_takes_its_new_leader_whatever_the_epoch() -> None:
    metadata = Metadata()
    metadata.update(responded(topic("a", leader=1, epoch=7, topic_id=1)), None, 0.0)
    metadata.update(responded(topic("a", leader=2, epoch=0, topic_id=5)), None, 1.0)
    assert metadata.leader(TopicPartition("a", 0)) == 2
    assert (metadata.topic_name(UUID(int=1)), metadata.topic_name(UUID(int=5))) == (None, "a")
    metadata.remove_topics(["a"])
    assert metadata.topic_id("a") == UUID(int=0)
    assert metadata.topic_name(UUID(int=5)) is None


def test_errors_that_may_pass_ask_for_another_update() -> None:
    metadata = Metadata()
    metadata.add_topics(["a"])
    for error_code, again in ((LeaderNotAvailable.code, True), (InvalidTopic.code, False), (0, False)):
        _, asked = metadata.request(0.0)
        metadata.update(responded(topic("a", error_code=error_code)), asked, 0.0)
        assert metadata.update_requested is again
