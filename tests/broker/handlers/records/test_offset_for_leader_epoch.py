"""OffsetForLeaderEpoch over the wire, at every version."""

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.testing import Broker
from broker.admin_rig import versions
from broker.handlers.records.five_records import topic as topic
from broker.sent_requests import append, batch, produce
from broker.wire import Wire, name_of, on_loop, server_of


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


def test_an_epoch_without_records_ended_where_the_one_before_did(broker: Broker, wire: Wire) -> None:
    broker.create_topic("empty")
    partition = server_of(broker).replica_manager.get("empty", 0)

    def end_of(epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic="empty", partitions=[asked])]
        found = wire.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 3).topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    on_loop(broker, lambda: setattr(partition, "leader_epoch", 4))
    assert end_of(2) == (2, 0), "a log that never had a record"
    on_loop(broker, lambda: setattr(partition, "leader_epoch", 0))
    assert append(wire, "empty") == 0
    on_loop(broker, lambda: setattr(partition, "leader_epoch", 4))
    assert [end_of(epoch) for epoch in (0, 2, 4, 5)] == [(0, 1), (0, 1), (4, 1), (-1, -1)]
