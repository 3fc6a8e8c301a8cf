"""DescribeProducers: the producers that a log knows."""

import pytest

from barnabas.broker.server import Broker
from barnabas.errors import (
    InvalidTopic,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.admin_rig import ask, create, produce
from broker.admin_rig import broker as broker


def test_producers_that_the_log_knows(broker: Broker) -> None:
    create(broker, "a", 2)
    produce(broker, "a", 0, producer_id=77, base_sequence=0)
    produce(broker, "a", 0, producer_id=77, base_sequence=2)
    wanted = [TopicRequest(name="a", partition_indexes=[0, 1])]
    (topic,) = ask(broker, DescribeProducersRequest(topics=wanted)).topics
    with_producer, without = topic.partitions
    (producer,) = with_producer.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 3, 3)
    assert producer.last_timestamp == 1_001
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert (without.error_code, without.error_message, list(without.active_producers)) == (0, None, [])


def test_producers_of_what_is_not_here(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "a")
    wanted = [TopicRequest(name=name, partition_indexes=[5]) for name in ("a", "nosuch", "b b")]
    topics = ask(broker, DescribeProducersRequest(topics=wanted)).topics
    assert [t.partitions[0].error_code for t in topics] == [
        UnknownTopicOrPartition.code,
        UnknownTopicOrPartition.code,
        InvalidTopic.code,
    ]
    monkeypatch.setattr(broker.replica_manager, "_partitions", {})
    (topic,) = ask(broker, DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0])])).topics
    assert topic.partitions[0].error_code == NotLeaderOrFollower.code
