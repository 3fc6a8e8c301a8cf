"""DescribeTopicPartitions: pages that cover everything once."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import (
    InvalidRequest,
    InvalidTopic,
    UnknownTopicOrPartition,
)
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestedCursor,
    TopicRequest,
)
from barnabas.types import BrokerId
from broker.admin_rig import ask, create, running_broker
from broker.admin_rig import broker as broker


def pages(broker: Broker, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """Page by page, what each topic showed."""
    found: list[list[tuple[str, list[int]]]] = []
    cursor = None
    while True:
        topics = [TopicRequest(name=name) for name in names]
        answer = ask(
            broker, DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        )
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        assert len(found) < 20
        if answer.next_cursor is None:
            return found
        cursor = RequestedCursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )


def test_pages_cover_everything_once(broker: Broker) -> None:
    create(broker, "b", 2)
    create(broker, "a", 3)
    assert pages(broker, [], 2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1])]]
    assert pages(broker, [], 3) == [[("a", [0, 1, 2])], [("b", [0, 1])]]
    assert pages(broker, ["b", "a", "b"], 2000) == [[("a", [0, 1, 2]), ("b", [0, 1])]]
    assert pages(broker, ["b"], -1) == [[("b", [0])], [("b", [1])]]


def test_page_is_never_larger_than_the_broker_allows(tmp_path: Path) -> None:
    with running_broker(tmp_path, max_request_partition_size_limit=2) as broker:
        create(broker, "a", 3)
        assert pages(broker, [], 2000) == [[("a", [0, 1])], [("a", [2])]]


def test_missing_topics_take_no_room(broker: Broker) -> None:
    create(broker, "b")
    answer = ask(
        broker,
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in ("b", "a", "a!")], response_partition_limit=1
        ),
    )
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", UnknownTopicOrPartition.code),
        ("a!", InvalidTopic.code),
        ("b", 0),
    ]
    assert answer.next_cursor is None
    (partition,) = answer.topics[2].partitions
    assert (partition.leader_id, partition.isr_nodes, partition.eligible_leader_replicas) == (1, [1], [])
    assert answer.topics[2].topic_id == broker.image.topics["b"].topic_id


@pytest.mark.parametrize(("topic", "partition"), [("b", 0), ("a", -1)])
def test_bad_cursor(broker: Broker, topic: str, partition: int) -> None:
    create(broker, "a")
    cursor = RequestedCursor(topic_name=topic, partition_index=partition)
    answer = ask(broker, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor))
    assert [(t.name, t.error_code) for t in answer.topics] == [("a", InvalidRequest.code)]


def test_replicas_that_are_eligible_to_lead_or_offline(broker: Broker) -> None:
    create(broker, "t")
    topic = broker.image.topics["t"]
    partition = topic.partitions[0]._replace(replicas=(1, 2, 3), elr=(2,), last_known_elr=(3,))
    topics = {"t": topic._replace(partitions=(partition,))}
    others = {2: BrokerImage(BrokerId(2), 1, ()), 3: BrokerImage(BrokerId(3), 1, (), fenced=True)}
    image = MetadataImage(broker.cluster_id, version=1_000, brokers={**broker.image.brokers, **others}, topics=topics)
    cluster = SimpleNamespace(image=image, config=broker.config)
    (described,) = ask(cluster, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])).topics
    found = described.partitions[0]
    assert list(found.eligible_leader_replicas) == [2]
    assert list(found.last_known_elr) == [3]
    assert list(found.offline_replicas) == [3]
