"""DeleteRecords that waits until the live followers have deleted the records, too."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers import HANDLER_MODULES
from barnabas.broker.server import Broker
from barnabas.errors import NotLeaderOrFollower, OffsetOutOfRange, RequestTimedOut
from barnabas.metadata.image import BrokerImage, MetadataImage
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.replication.partition import Partition
from broker.admin_rig import broker, create, produce
from broker.followers import FOLLOWER, add_follower, elect, follower_has

__all__ = ["broker"]


def delete(broker: Broker, offset: int, timeout_ms: int = 60_000) -> Any:
    """Returns the response, or a future of it."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=timeout_ms)
    return import_module(HANDLER_MODULES["delete_records"]).handle(broker, request, SimpleNamespace())


def result(response: Any) -> tuple[int, int]:
    (partition,) = response.topics[0].partitions
    return partition.error_code, partition.low_watermark


def with_follower(broker: Broker, *, is_live: bool = True) -> Partition:
    """Gives the topic's partition, which has four committed records, a second replica on another broker."""
    create(broker, "t")
    for _ in range(2):
        produce(broker, "t", 0)
    manager = broker.replica_manager
    image = manager.image
    assert image is not None
    brokers = {**image.brokers, FOLLOWER: BrokerImage(FOLLOWER, 5, (), fenced=not is_live)}
    manager.apply(MetadataImage(image.cluster_id, topics=image.topics, brokers=brokers), ())
    partition = manager.leader_of("t", 0)
    add_follower(partition)
    return partition


def test_the_response_waits_for_the_followers(broker: Broker) -> None:
    partition = with_follower(broker)
    response = delete(broker, 3)
    assert partition.log.log_start_offset == 3
    follower_has(partition, 4, log_start_offset=2, broker_epoch=5)
    broker.loop.run_until_complete(_turn())
    assert not response.done()
    follower_has(partition, 4, log_start_offset=3, broker_epoch=5)
    assert result(broker.loop.run_until_complete(response)) == (0, 3)
    assert result(delete(broker, 2)) == (0, 3), "deleted everywhere already"


async def _turn() -> None: ...


def test_nobody_waits_for_a_broker_that_is_down(broker: Broker) -> None:
    with_follower(broker, is_live=False)
    assert result(delete(broker, -1)) == (0, 4)


def test_followers_that_do_not_fetch_in_time(broker: Broker) -> None:
    partition = with_follower(broker)
    assert result(broker.loop.run_until_complete(delete(broker, 3, timeout_ms=1))) == (RequestTimedOut.code, -1)
    assert partition.log.log_start_offset == 3, "the leader has deleted the records"


def test_the_leader_changes_meanwhile(broker: Broker) -> None:
    partition = with_follower(broker)
    response = delete(broker, 3)
    elect(partition, FOLLOWER)
    assert result(broker.loop.run_until_complete(response)) == (NotLeaderOrFollower.code, -1)


@pytest.mark.parametrize("offset", [5, -2])
def test_offsets_that_are_not_committed(broker: Broker, offset: int) -> None:
    with_follower(broker)
    assert result(delete(broker, offset)) == (OffsetOutOfRange.code, -1)
