"""Partitions of an internal topic and their coordinator: elections, resignations, high watermarks."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.broker.coordinators.leadership import listen_to_partitions
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.wire import Wire, on_controller, on_loop, server_of


def test_groups_go_on_in_a_new_epoch_of_the_same_leader(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[offset])],
    )

    def code() -> int:
        return int(wire.ask(commit, 8).topics[0].partitions[0].error_code)

    inner = server_of(broker)
    on_controller(broker, lambda controller: controller.auto_create_topics(["__consumer_offsets"]))
    broker.wait_for(lambda: code() == 0)

    def bump() -> None:
        manager = inner.replica_manager
        topic = manager.image.topics["__consumer_offsets"]
        newer = [p._replace(leader_epoch=p.leader_epoch + 1) for p in topic.partitions]
        manager._take(topic._replace(partitions=tuple(newer)))

    for _ in range(3):
        on_loop(broker, bump)
    broker.wait_for(lambda: code() == 0, what="a commit in the new epoch")
    assert broker.committed("g") == {("t", 0): 5}
    assert all(len(p.watchers) == 1 for p in inner.replica_manager.all() if p.topic_partition.topic[0] == "_")


class Watched:
    """A partition as a coordinator's watcher sees it."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic_partition = TopicPartition(topic, index)
        self.leader_epoch = 3
        self.is_leader = True
        self.log = SimpleNamespace(high_watermark=0)
        self.watchers: dict[Any, None] = {}

    def move(self, high_watermark: int) -> None:
        self.log.high_watermark = high_watermark
        for watcher in self.watchers:
            watcher.partition_changed(self)


class Listener:
    """Writes down what a coordinator is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        self.told.append(("elected", partition, leader_epoch))

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        self.told.append(("resigned", partition))

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        self.told.append(("mark", partition, high_watermark))


def test_a_coordinator_is_told_of_its_own_topic_once_a_turn() -> None:
    due: list[Callable[[], None]] = []
    loop: Any = SimpleNamespace(call_soon=due.append)
    manager: Any = SimpleNamespace(on_leadership=[], on_resignation=[])
    listener, ours, other = Listener(), Watched("__internal", 2), Watched("t", 2)
    listen_to_partitions("__internal", listener, manager, loop)
    for partition in (ours, other, ours):
        manager.on_leadership[0](partition)
    assert listener.told == [("elected", 2, 3)] * 2
    assert (len(ours.watchers), len(other.watchers)) == (1, 0)
    listener.told.clear()
    for mark in (4, 5, 6):
        ours.move(mark)
    assert len(due) == 1
    due.pop()()
    ours.move(7)
    ours.is_leader = False
    due.pop()()
    assert listener.told == [("mark", 2, 6)], "who does not lead any more has no marks"
    manager.on_resignation[0](other.topic_partition)
    manager.on_resignation[0](ours.topic_partition)
    assert listener.told[1:] == [("resigned", 2)]
