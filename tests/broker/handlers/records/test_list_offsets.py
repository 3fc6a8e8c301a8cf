"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch and InitProducerId over the wire, at every version."""

from typing import Any

import pytest

from barnabas.errors import error_for
from barnabas.protocol.apis import SERVED, ApiKey
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.testing import Broker
from broker.sent_requests import T0, batch, fetch, produce
from broker.wire import Wire, on_loop, server_of


def versions(key: ApiKey) -> range:
    return range(SERVED[key].first, SERVED[key].last + 1)


def name_of(code: int) -> str:
    return type(error_for(code)).__name__ if code else ""


@pytest.fixture(autouse=True)
def topic(broker: Broker) -> None:
    """Four records at T0+0, +10, +30, +20; the second and third in one batch."""
    broker.create_topic("t", partitions=2)
    with Wire(broker) as wire:
        for records in (
            batch(b"0", timestamp=T0),
            batch(b"1", b"2", timestamp=T0 + 10),
            batch(b"3", timestamp=T0 + 30),
            batch(b"4", timestamp=T0 + 20),
        ):
            assert wire.ask(produce(broker, {0: records}), 12).responses[0].partition_responses[0].error_code == 0


# --- ListOffsets ----------------------------------------------------------------------------------------------------


def list_offsets(
    wire: Wire, timestamp: int, version: int, *, index: int = 0, topic: str = "t", epoch: int = -1
) -> tuple[str, int, int, int]:
    """(error, offset, timestamp, leader epoch)"""
    wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    ((found,),) = [answer.partitions for answer in wire.ask(request, version).topics]
    assert found.partition_index == index
    return name_of(found.error_code), found.offset, found.timestamp, found.leader_epoch


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_the_ends_and_times_of_a_log(broker: Broker, wire: Wire, version: int) -> None:
    def offset(timestamp: int, index: int = 0) -> tuple[str, int, int]:
        return list_offsets(wire, timestamp, version, index=index)[:3]

    assert offset(-1) == ("", 5, -1)
    assert offset(-2) == ("", 0, -1)
    assert offset(-1, index=1) == offset(-2, index=1) == ("", 0, -1)
    assert offset(0) == ("", 0, T0)
    assert offset(T0 + 1) == offset(T0 + 10) == ("", 1, T0 + 10)
    assert offset(T0 + 11) == offset(T0 + 21) == ("", 3, T0 + 30)
    assert offset(T0 + 31) == offset(T0, index=1) == ("", -1, -1)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_places_that_younger_versions_name(broker: Broker, wire: Wire, version: int) -> None:
    for spec, first, found in ((-3, 7, ("", 3, T0 + 30)), (-4, 8, ("", 0, -1)), (-5, 9, ("", -1, -1))):
        expected = found if version >= first else ("UnsupportedVersion", -1, -1)
        assert list_offsets(wire, spec, version)[:3] == expected


@pytest.mark.parametrize("version", [4, 6, 11])
def test_list_offsets_knows_the_leader_epoch(wire: Wire, version: int) -> None:
    assert list_offsets(wire, -1, version)[3] == 0
    assert list_offsets(wire, T0, version, epoch=0)[::3] == ("", 0)
    assert list_offsets(wire, T0, version, epoch=3)[0] == "UnknownLeaderEpoch"


def test_list_offsets_of_what_is_not_there(wire: Wire) -> None:
    assert list_offsets(wire, -1, 7, topic="gone")[0] == "UnknownTopicOrPartition"
    assert list_offsets(wire, -1, 7, index=9)[0] == "UnknownTopicOrPartition"
    assert list_offsets(wire, -1, 7, index=-1)[0] == "UnknownTopicOrPartition"


def test_a_partition_that_stands_twice_is_refused_alone(wire: Wire) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    (answer,) = wire.ask(request, 7).topics
    assert [name_of(found.error_code) for found in answer.partitions] == ["InvalidRequest", ""]


# --- DeleteRecords --------------------------------------------------------------------------------------------------


def delete_records(wire: Wire, offset: int, version: int = 2, *, topic: str = "t", index: int = 0) -> tuple[str, int]:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    ((found,),) = [
        answer.partitions for answer in wire.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), version).topics
    ]
    return name_of(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_the_start_of_a_log_moves_up(broker: Broker, wire: Wire, version: int) -> None:
    assert delete_records(wire, 2, version) == ("", 2)
    assert delete_records(wire, 1, version) == ("", 2), "never back"
    assert list_offsets(wire, -2, 7)[1] == 2
    answer = wire.ask(fetch(broker, {0: 0}), 12)
    assert name_of(answer.responses[0].partitions[0].error_code) == "OffsetOutOfRange"
    assert delete_records(wire, 6, version) == ("OffsetOutOfRange", -1)
    assert delete_records(wire, -2, version) == ("OffsetOutOfRange", -1)
    assert delete_records(wire, -1, version) == ("", 5)
    assert [record.offset for record in broker.records("t", 0)] == []


def test_records_that_may_not_be_deleted(broker: Broker, wire: Wire) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    broker.create_topic("both", configs={"cleanup.policy": "compact,delete"})
    assert delete_records(wire, 0, topic="compacted") == ("PolicyViolation", -1)
    assert delete_records(wire, 0, topic="both") == ("", 0)
    assert delete_records(wire, 0, topic="gone") == ("UnknownTopicOrPartition", -1)
    assert delete_records(wire, 0, index=5) == ("UnknownTopicOrPartition", -1)


def test_deleted_records_stay_deleted_after_a_restart() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with Wire(broker) as wire:
            wire.ask(produce(broker, {0: batch(b"a", b"b", b"c")}), 12)
            assert delete_records(wire, 2) == ("", 2)
        broker.restart()
        assert [record.value for record in broker.records("t")] == [b"c"]


# --- OffsetForLeaderEpoch -------------------------------------------------------------------------------------------


def end_of_epoch(wire: Wire, epoch: int, version: int, *, index: int = 0, current: int = -1) -> tuple[str, int, int]:
    wanted = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    ((found,),) = [answer.partitions for answer in wire.ask(request, version).topics]
    assert found.partition == index
    return name_of(found.error_code), found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_where_epochs_end(broker: Broker, wire: Wire, version: int) -> None:
    assert end_of_epoch(wire, 0, version) == ("", 0, 5)
    assert end_of_epoch(wire, 0, version, index=1) == ("", 0, 0), "the present epoch, though it has no record"
    assert end_of_epoch(wire, 1, version)[1:] == (-1, -1)
    assert end_of_epoch(wire, 0, version, index=7)[0] == "UnknownTopicOrPartition"
    assert end_of_epoch(wire, 0, version, current=0)[0] == ""
    assert end_of_epoch(wire, 0, version, current=1)[0] == "UnknownLeaderEpoch"

    def newer() -> None:
        server_of(broker).replica_manager.leader_of("t", 0).leader_epoch = 4

    on_loop(broker, newer)
    wire.ask(produce(broker, {0: batch(b"5")}), 12)
    assert end_of_epoch(wire, 0, version) == end_of_epoch(wire, 3, version) == ("", 0, 5)
    assert end_of_epoch(wire, 4, version) == ("", 4, 6)
    assert end_of_epoch(wire, 0, version, current=3)[0] == "FencedLeaderEpoch"


# --- InitProducerId -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_producer_ids_are_new_each_time(wire: Wire, version: int) -> None:
    def ask(**fields: Any) -> Any:
        return wire.ask(InitProducerIdRequest(transaction_timeout_ms=1000, **fields), version)

    answers = [ask(transactional_id=None) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, 0)] * 3
    assert len({answer.producer_id for answer in answers}) == 3
    refused = ask(transactional_id="mine")  # of whose coordinator nobody has asked yet
    assert name_of(refused.error_code) == "NotCoordinator"
    assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
    if version >= 3:
        assert name_of(ask(transactional_id=None, producer_id=5).error_code) == "InvalidRequest"


def test_producer_ids_are_never_given_twice_even_after_restarts() -> None:
    given: list[int] = []
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    with Broker() as broker:
        for _ in range(3):
            with Wire(broker) as wire:
                given += [wire.ask(request, 4).producer_id for _ in range(50)]
            broker.restart()
    assert len(set(given)) == 150
