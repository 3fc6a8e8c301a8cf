"""A topic with a few records at known times, and where its offsets are."""

import pytest

from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.testing import Broker
from broker.sent_requests import T0, batch, produce
from broker.wire import Wire, name_of


@pytest.fixture(autouse=True)
def topic(broker: Broker) -> None:
    """Five records at T0+0, +10, +10, +30, +20; the second and third in one batch."""
    broker.create_topic("t", partitions=2)
    with Wire(broker) as wire:
        for records in (
            batch(b"0", timestamp=T0),
            batch(b"1", b"2", timestamp=T0 + 10),
            batch(b"3", timestamp=T0 + 30),
            batch(b"4", timestamp=T0 + 20),
        ):
            assert wire.ask(produce(broker, {0: records}), 12).responses[0].partition_responses[0].error_code == 0


def list_offsets(
    wire: Wire, timestamp: int, version: int, *, index: int = 0, topic: str = "t", epoch: int = -1
) -> tuple[str, int, int, int]:
    """(error, offset, timestamp, leader epoch)"""
    wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    ((found,),) = [answer.partitions for answer in wire.ask(request, version).topics]
    assert found.partition_index == index
    return name_of(found.error_code), found.offset, found.timestamp, found.leader_epoch
