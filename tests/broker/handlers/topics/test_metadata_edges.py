"""Metadata, ListOffsets and OffsetForLeaderEpoch at their edges; produce to topics with long names."""

import uuid

import pytest

from barnabas.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaStorageError,
    OffsetNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.log.unified_log import UnifiedLog
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing import Broker
from broker.wire import Wire, on_loop, server_of


def metadata(wire: Wire, *names: str | None, version: int = 12, create: bool = False, ids=()):  # type: ignore[no-untyped-def]
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    answer = wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
    return [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics]


def test_a_topic_is_answered_once_however_often_it_was_asked_for(broker: Broker, wire: Wire) -> None:
    broker.create_topic("wide", 50)
    topic_id = server_of(broker).image.topics["wide"].topic_id
    assert metadata(wire, *["wide"] * 1000) == [("wide", 0, 50)]
    assert metadata(wire, *["no"] * 1000) == [("no", UnknownTopicOrPartition.code, 0)]
    assert metadata(wire, ids=[topic_id] * 100) == [("wide", 0, 50)]


def test_a_topic_asked_for_twice_is_created_once(wire: Wire) -> None:
    assert metadata(wire, "new", "new", create=True) == [("new", 0, 1)]


def test_names_that_no_topic_can_have(wire: Wire) -> None:
    assert metadata(wire, "a b", "", "fine") == [
        ("a b", InvalidTopic.code, 0),
        ("", InvalidTopic.code, 0),
        ("fine", UnknownTopicOrPartition.code, 0),
    ]
    assert metadata(wire, "a b", create=True) == [("a b", InvalidTopic.code, 0)]


def test_ids_go_before_names(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    unknown = uuid.uuid4()
    ids = [server_of(broker).image.topics["t"].topic_id, unknown]
    assert metadata(wire, "u", ids=ids) == [("t", 0, 1), (None, UnknownTopicId.code, 0)]


@pytest.mark.parametrize("version", [10, 11])
def test_neither_null_nor_ids_before_v12(broker: Broker, wire: Wire, version: int) -> None:
    broker.create_topic("t")
    topic_id = server_of(broker).image.topics["t"].topic_id
    assert metadata(wire, None, version=version) == [("", InvalidRequest.code, 0)]
    assert metadata(wire, ids=[topic_id], version=version) == [("", InvalidRequest.code, 0)]


# --- ListOffsets, OffsetForLeaderEpoch -------------------------------------------------------------------------------


def list_offsets(wire: Wire, timestamp: int, version: int = 5) -> tuple[int, int]:
    """(error code, offset)"""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    answer = wire.ask(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), version)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


def test_the_end_is_not_told_before_it_is_known(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    partition = server_of(broker).replica_manager.get("t", 0)

    def behind(by: int) -> None:
        partition.epoch_start_offset = by

    on_loop(broker, lambda: behind(1))
    assert list_offsets(wire, -1) == (OffsetNotAvailable.code, -1)
    assert list_offsets(wire, 1_700_000_000_000) == (OffsetNotAvailable.code, -1)
    assert list_offsets(wire, -1, version=4) == (5, -1)
    assert list_offsets(wire, -2) == (0, 0)
    on_loop(broker, lambda: behind(0))
    assert list_offsets(wire, -1) == (0, 0)


def test_a_disk_that_does_not_read_is_an_error_of_the_partition(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")

    def fail(self, timestamp):  # type: ignore[no-untyped-def]
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(UnifiedLog, "offset_for_timestamp", fail)
    assert list_offsets(wire, 1) == (KafkaStorageError.code, -1)


def test_an_epoch_without_records_ended_where_the_one_before_did(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    partition = server_of(broker).replica_manager.get("t", 0)

    def end_of(epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic="t", partitions=[asked])]
        found = wire.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 3).topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    on_loop(broker, lambda: setattr(partition, "leader_epoch", 4))
    assert end_of(2) == (2, 0), "a log that never had a record"
    on_loop(broker, lambda: setattr(partition, "leader_epoch", 0))
    assert produce(wire, "t", 0) == 0
    on_loop(broker, lambda: setattr(partition, "leader_epoch", 4))
    assert [end_of(epoch) for epoch in (0, 2, 4, 5)] == [(0, 1), (0, 1), (4, 1), (-1, -1)]


# --- Produce ---------------------------------------------------------------------------------------------------------


def produce(wire: Wire, topic: str, partition: int, value: bytes = b"x") -> int:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value, ())])
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
    answer = wire.ask(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def test_a_long_name_and_a_partition_number_that_looks_like_a_size(broker: Broker, wire: Wire) -> None:
    name = "n" * 200
    broker.create_topic(name, 100)
    for partition in range(70, 100):
        for size in range(30):
            assert produce(wire, name, partition, b"v" * size) == 0, (partition, size)


def test_no_answer_to_acks_0_even_when_the_whole_request_is_refused(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    records = [Record(0, 1_700_000_000_000, None, b"x", ())]
    batch = build_batch(records, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])]
    wire.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=data), 8)
    assert wire.is_closed()
