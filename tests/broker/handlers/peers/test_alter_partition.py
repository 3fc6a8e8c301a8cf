"""AlterPartition: the controller decides about the in-sync replicas that leaders propose."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.errors import (
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
)
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestedPartitionData,
    RequestedTopicData,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from broker.cluster.clusters import create_request
from broker.handlers.peers.conftest import Register, image_of
from broker.peers.conftest import Peer
from broker.wire import Wire, on_controller


@pytest.fixture
def epoch(controller: Peer, from_two: Wire, register: Register) -> int:
    """The epoch of broker 2, which leads the partitions of t."""
    epoch = register()
    from_two.ask(BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch, current_metadata_offset=10**6), 2)
    with Wire(controller.broker) as client:
        (topic,) = client.ask(create_request("t", (2, 1), (2, 1)), 7).topics
    assert topic.error_code == 0
    return epoch


def propose(
    peer: Peer, epoch: int, *isrs: list[tuple[int, int]], topic_id: UUID | None = None
) -> AlterPartitionRequest:
    """Proposes an ISR of (broker, epoch) for each partition."""
    topic = image_of(peer).topics["t"]
    partitions = [
        RequestedPartitionData(
            partition_index=number,
            leader_epoch=topic.partitions[number].leader_epoch,
            partition_epoch=topic.partitions[number].partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=broker, broker_epoch=known) for broker, known in isr],
        )
        for number, isr in enumerate(isrs)
    ]
    wanted = RequestedTopicData(topic_id=topic_id or topic.topic_id, partitions=partitions)
    return AlterPartitionRequest(broker_id=2, broker_epoch=epoch, topics=[wanted])


def described(answer: Any) -> list[tuple[int, int, int, int, list[int]]]:
    assert answer.error_code == 0
    return [
        (each.partition_index, each.error_code, each.leader_id, each.partition_epoch, list(each.isr))
        for topic in answer.topics
        for each in topic.partitions
    ]


def test_each_partition_gets_an_answer(controller: Peer, from_two: Wire, epoch: int) -> None:
    request = propose(controller, epoch, [(2, epoch)], [(2, epoch), (1, 99)])
    answer = from_two.ask(request, 3)
    assert described(answer) == [(0, 0, 2, 1, [2]), (1, IneligibleReplica.code, 0, 0, [])]
    partitions = image_of(controller).topics["t"].partitions
    assert [partition.isr for partition in partitions] == [(2,), (2, 1)]
    again = from_two.ask(request, 3)
    assert described(again)[0][1] == InvalidUpdateVersion.code


def test_what_is_not_known(controller: Peer, from_two: Wire, epoch: int) -> None:
    answer = from_two.ask(propose(controller, epoch, [(2, epoch)], topic_id=UUID(int=5)), 3)
    assert described(answer)[0][:2] == (0, UnknownTopicId.code)
    answer = from_two.ask(propose(controller, epoch - 1, [(2, epoch)]), 3)
    assert (answer.error_code, list(answer.topics)) == (StaleBrokerEpoch.code, [])


def test_another_broker_is_the_controller(
    controller: Peer, from_two: Wire, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = propose(controller, epoch, [(2, epoch)])
    monkeypatch.setattr(on_controller(controller.broker, lambda it: it), "_controller_epoch", None)
    assert from_two.ask(request, 3).error_code == NotController.code
