"""Requests that are sent before the response to one that waits for the controller."""

from collections.abc import Iterator

import pytest

from barnabas.errors import UnknownTopicOrPartition
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import Broker
from broker.wire import Wire


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Broker(settings={"auto.create.topics.enable": True}) as broker, Wire(broker) as wire:
        yield wire


def test_a_request_finds_what_the_one_before_has_created(wire: Wire) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=[partition])])
    for round_number in range(20):
        if round_number % 2:
            wire.send(MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=True), 9)
        else:
            topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            wire.send(CreateTopicsRequest(topics=[topic]), 5)
        wire.send(offsets, 5)
        wire.send(DeleteTopicsRequest(topic_names=["a"]), 5)
        wire.send(offsets, 5)
        assert wire.receive().topics[0].error_code == 0
        assert wire.receive().topics[0].partitions[0].error_code == 0
        assert wire.receive().responses[0].error_code == 0
        assert wire.receive().topics[0].partitions[0].error_code == UnknownTopicOrPartition.code
