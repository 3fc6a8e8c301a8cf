"""Changes of in-sync replicas on their way to a controller that the test plays."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.cluster import isr_changes
from barnabas.broker.cluster.isr_changes import IsrChangeSender
from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.broker.peers.peer_connections import Role
from barnabas.controller.isr_control import IsrRequest
from barnabas.errors import (
    ConnectionLost,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    UnknownServerError,
)
from barnabas.metadata.image import PartitionImage
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    DescribedPartitionData,
    DescribedTopicData,
)
from barnabas.replication.replica import BrokerState, IsrChange
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition

ID = UUID(int=7)


def change(partition: int = 0, *, epoch: int = 4, isr: tuple[int, ...] = (1, 2), topic_id: UUID = ID) -> IsrChange:
    members = tuple(BrokerState(BrokerId(node_id), node_id * 10) for node_id in isr)
    return IsrChange(TopicPartition("t", partition), topic_id, LeaderEpoch(3), epoch, members)


class Partition:
    """Takes note of the outcomes. `sends_again` is its answer to a refusal."""

    def __init__(self) -> None:
        self.topic_id = ID
        self.outcomes: list[Any] = []
        self.sends_again = False
        self.in_sync_replicas: tuple[int, ...] = (1, 2, 3)

    def isr_change_accepted(self, change: IsrChange, **outcome: Any) -> None:
        self.in_sync_replicas = outcome["in_sync_replicas"]
        self.outcomes.append((change, outcome))

    def isr_change_refused(self, change: IsrChange, error: KafkaError) -> bool:
        self.outcomes.append((change, type(error)))
        return self.sends_again


class Leader:
    """Broker 1, and the controller on broker `controller_id`."""

    def __init__(self, controller_id: int = 2) -> None:
        self.sent: list[tuple[AlterPartitionRequest, asyncio.Future[AlterPartitionResponse]]] = []
        self.decided: list[tuple[int, int, list[IsrRequest]]] = []
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.image = SimpleNamespace(controller_id=controller_id, brokers={1: SimpleNamespace(epoch=11)})
        broker = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            node_id=1,
            image=self.image,
            replica_manager=SimpleNamespace(get=self.get),
            controller=SimpleNamespace(call=self.call),
        )
        peers = SimpleNamespace(send=self.send)
        self.sender = IsrChangeSender(broker, ControllerChannel(broker, peers))  # type: ignore[arg-type]

    def get(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get((topic, index))

    def partition(self, index: int = 0) -> Partition:
        return self.partitions.setdefault(("t", index), Partition())

    def send(self, node_id: int, request: Any, *, role: Role, timeout_s: float | None) -> "asyncio.Future[Any]":
        assert (node_id, role) == (self.image.controller_id, Role.CONTROL)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((request, future))
        return future

    async def call(self, action: Callable[[Any], Any], *, until_known: bool) -> Any:
        assert not until_known, "the answer does not wait for other brokers"
        return action(self)

    def alter_partitions(self, node_id: int, epoch: int, requests: list[IsrRequest]) -> list[Any]:
        self.decided.append((node_id, epoch, requests))
        accepted = PartitionImage(BrokerId(1), LeaderEpoch(3), (), (BrokerId(1),), 5)
        return [(request, accepted) for request in requests]

    def answer(self, *partitions: DescribedPartitionData, error_code: int = 0) -> None:
        topics = [DescribedTopicData(topic_id=ID, partitions=list(partitions))] if partitions else []
        self.sent.pop(0)[1].set_result(AlterPartitionResponse(error_code=error_code, topics=topics))


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def until_sent(leader: Leader) -> AlterPartitionRequest:
    while not leader.sent:  # noqa: ASYNC110  # on plain values
        await asyncio.sleep(0.001)
    return leader.sent[0][0]


ACCEPTED = DescribedPartitionData(partition_index=0, leader_id=1, leader_epoch=3, isr=[1, 2], partition_epoch=5)


def test_changes_of_one_turn_go_in_one_request() -> None:
    async def main() -> None:
        leader = Leader()
        zero, one = leader.partition(0), leader.partition(1)
        leader.sender.submit(change(0))
        leader.sender.submit(change(1, isr=(1,)))
        await turns()
        ((request, _),) = leader.sent
        assert (request.broker_id, request.broker_epoch) == (1, 11)
        (topic,) = request.topics
        assert topic.topic_id == ID
        sent = [(each.partition_index, each.leader_epoch, each.partition_epoch) for each in topic.partitions]
        assert sent == [(0, 3, 4), (1, 3, 4)]
        members = [[(m.broker_id, m.broker_epoch) for m in each.new_isr_with_epochs] for each in topic.partitions]
        assert members == [[(1, 10), (2, 20)], [(1, 10)]]
        refused = DescribedPartitionData(partition_index=1, error_code=IneligibleReplica.code)
        leader.answer(ACCEPTED, refused)
        await turns()
        assert zero.outcomes == [(change(0), {"leader_epoch": 3, "partition_epoch": 5, "in_sync_replicas": (1, 2)})]
        assert one.outcomes == [(change(1, isr=(1,)), IneligibleReplica)]
        assert leader.sent == []

    run(main)


def test_a_changed_isr_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.broker")

    async def main() -> None:
        leader = Leader()
        partition = leader.partition()
        for before in ((1, 2, 3), (1,), (1, 2)):
            partition.in_sync_replicas = before
            leader.sender.submit(change())
            await turns()
            leader.answer(ACCEPTED)
            await turns()

    run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "the ISR of t-0 shrinks from 1,2,3 to 1,2",
        "the ISR of t-0 expands from 1 to 1,2",
    ]


def test_one_request_is_in_flight() -> None:
    async def main() -> None:
        leader = Leader()
        leader.partition()
        leader.sender.submit(change(0))
        await turns()
        leader.sender.submit(change(1))
        leader.sender.submit(change(2, epoch=7))
        leader.sender.submit(change(2, epoch=8))
        await turns()
        assert len(leader.sent) == 1
        leader.answer(ACCEPTED)
        await turns()
        (topic,) = leader.sent[0][0].topics
        assert [(each.partition_index, each.partition_epoch) for each in topic.partitions] == [(1, 4), (2, 8)]

    run(main)


def test_a_request_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "CHANGES_MAX", 2)

    async def main() -> None:
        leader = Leader()
        for number in range(5):
            leader.sender.submit(change(number))
        sizes = []
        while len(sizes) < 3:
            await turns()
            sizes.append(len(leader.sent[0][0].topics[0].partitions))
            leader.answer()
        assert sizes == [2, 2, 1]

    run(main)


@pytest.mark.parametrize("failure", ["lost", "refused", "silent about it"])
def test_a_change_without_an_answer_is_sent_again(failure: str) -> None:
    async def main() -> None:
        leader = Leader()
        partition = leader.partition()
        partition.sends_again = True
        leader.sender.submit(change())
        await turns()
        if failure == "lost":
            leader.sent.pop(0)[1].set_exception(ConnectionLost("reset"))
        else:
            leader.answer(error_code=NotController.code if failure == "refused" else 0)
        leader.image.controller_id = 3
        request = await until_sent(leader)
        assert request.topics[0].partitions[0].partition_epoch == 4
        assert partition.outcomes == [(change(), NotController)]
        leader.answer(ACCEPTED)
        await turns()
        assert len(partition.outcomes) == 2
        assert leader.sent == []

    run(main)


def test_a_newer_change_takes_the_place_of_one_that_is_sent_again() -> None:
    async def main() -> None:
        leader = Leader()
        leader.partition().sends_again = True
        leader.sender.submit(change(epoch=4))
        await turns()
        leader.sender.submit(change(epoch=9))
        leader.answer(DescribedPartitionData(partition_index=0, error_code=UnknownServerError.code))
        request = await until_sent(leader)
        assert [each.partition_epoch for each in request.topics[0].partitions] == [9]

    run(main)


@pytest.mark.parametrize("error", [FencedLeaderEpoch, InvalidUpdateVersion])
def test_what_the_partition_gives_up_is_not_sent_again(error: type[KafkaError]) -> None:
    async def main() -> None:
        leader = Leader()
        partition = leader.partition()
        leader.sender.submit(change())
        await turns()
        leader.answer(DescribedPartitionData(partition_index=0, error_code=error.code))
        await turns()
        assert partition.outcomes == [(change(), error)]
        assert not leader.sender._is_sending
        leader.sender.submit(change(epoch=5))
        await turns()
        assert len(leader.sent) == 1, "and the next change is sent at once"

    run(main)


def test_a_topic_that_was_made_anew_does_not_get_the_outcome() -> None:
    async def main() -> None:
        leader = Leader()
        partition = leader.partition()
        leader.sender.submit(change())
        leader.sender.submit(change(1))
        await turns()
        partition.topic_id = UUID(int=8)
        leader.answer(ACCEPTED)
        await turns()
        assert partition.outcomes == []

    run(main)


def test_the_controller_on_this_broker_decides_without_a_request() -> None:
    async def main() -> None:
        leader = Leader(controller_id=1)
        partition = leader.partition()
        leader.sender.submit(change())
        await turns()
        assert leader.sent == []
        ((node_id, epoch, (request,)),) = leader.decided
        assert (node_id, epoch) == (1, 11)
        assert request == IsrRequest(ID, 0, LeaderEpoch(3), 4, change().new_isr)
        assert partition.outcomes == [(change(), {"leader_epoch": 3, "partition_epoch": 5, "in_sync_replicas": (1,)})]

    run(main)


def test_after_its_end_nothing_is_sent() -> None:
    async def main() -> None:
        leader = Leader()
        leader.partition().sends_again = True
        leader.sender.submit(change())
        await turns()
        leader.sender.close()
        leader.sent.pop(0)[1].set_exception(ConnectionLost("the broker shuts down"))
        leader.sender.submit(change(1))
        await asyncio.sleep(isr_changes.BACKOFF_S * 1.5)
        assert leader.sent == []

    run(main)
