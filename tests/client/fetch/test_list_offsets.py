"""Offsets asked from leaders that move, forget and refuse."""

from typing import Any

import pytest

from barnabas.client.fetch.list_offsets import epoch_ends, list_offsets
from barnabas.client.offset_messages import EARLIEST, LATEST, PartitionOffset
from barnabas.errors import OperationTimedOut, TopicAuthorizationFailed, TopicNotFound
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.types import TopicPartition
from simulation.world import Asked, World

LIST, EPOCHS, METADATA = 2, 23, 3
NOT_LEADER, FENCED_EPOCH = 6, 74


class Leaders(World):
    """Two brokers lead t-0 and t-1; an offset is ten times the timestamp asked for."""

    def __init__(self) -> None:
        super().__init__(nodes=2)
        self.topics["t"] = {0: 1, 1: 2}
        self.epochs = {("t", 0): 4, ("t", 1): 5}
        self.codes: list[int] = []
        self.handlers[LIST] = self._list
        self.handlers[EPOCHS] = self._epochs

    def _code(self, topic: str, partition: int, node_id: int) -> int:
        if self.codes:
            return self.codes.pop(0)
        return 0 if self.topics.get(topic, {}).get(partition) == node_id else NOT_LEADER

    def _list(self, asked: Asked) -> Any:
        topics = []
        for topic in asked.request.topics:
            partitions = [
                ListOffsetsPartitionResponse(
                    partition_index=p.partition_index,
                    error_code=self._code(topic.name, p.partition_index, asked.node_id),
                    offset=p.timestamp * 10,
                    timestamp=p.timestamp,
                    leader_epoch=p.current_leader_epoch,
                )
                for p in topic.partitions
            ]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(topics=topics)

    def _epochs(self, asked: Asked) -> Any:
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=p.partition, leader_epoch=p.leader_epoch, end_offset=100)
                    for p in topic.partitions
                ],
            )
            for topic in asked.request.topics
        ]
        return OffsetForLeaderEpochResponse(topics=topics)

    def ask(self, *, timeout_s: float = 30.0, **partitions: int) -> Any:
        wanted = {TopicPartition("t", int(name[1:])): timestamp for name, timestamp in partitions.items()}
        return self.result(list_offsets(self.network_client, wanted, read_committed=False, timeout_s=timeout_s))


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


def test_each_leader_is_asked_once(leaders: Leaders) -> None:
    began = leaders.now
    assert leaders.ask(p0=3, p1=4) == {P0: PartitionOffset(30, 3, 4), P1: PartitionOffset(40, 4, 5)}
    assert (leaders.count(LIST), leaders.now) == (2, began)
    assert leaders.ask(p0=LATEST)[P0].offset == -10
    (request,) = [asked.request for asked in leaders.asked[-1:]]
    assert (request.isolation_level, request.timeout_ms) == (0, 30_000)
    wanted = list_offsets(leaders.network_client, {P0: EARLIEST}, read_committed=True, timeout_s=1)
    leaders.result(wanted)
    assert leaders.asked[-1].request.isolation_level == 1


@pytest.mark.parametrize("code", [3, 5, NOT_LEADER, 9, 56, FENCED_EPOCH, 75, 78])
def test_passing_errors_ask_again_with_fresh_metadata(leaders: Leaders, code: int) -> None:
    leaders.ask(p0=1)
    before = leaders.count(METADATA)
    leaders.codes = [code, code]
    assert leaders.ask(p0=1)[P0].offset == 10
    assert leaders.count(METADATA) >= before + 1


def test_a_leader_that_moved_is_found(leaders: Leaders) -> None:
    leaders.ask(p0=1, p1=1)
    leaders.topics["t"][0], leaders.epochs["t", 0] = 2, 6
    assert leaders.ask(p0=1, p1=2)[P0] == PartitionOffset(10, 1, 6)


def test_a_leader_that_is_away_for_a_while(leaders: Leaders) -> None:
    leaders.ask(p0=1)
    leaders.stop(1)
    leaders.network_client.at(leaders.now + 7, lambda: leaders.up.add(1))
    assert leaders.ask(p0=2)[P0].offset == 20


def test_only_what_is_missing_is_asked_again(leaders: Leaders) -> None:
    leaders.topics["t"][1] = -1
    promise = list_offsets(leaders.network_client, {P0: 1, P1: 2}, read_committed=False, timeout_s=30)
    leaders.run(seconds=3)
    assert not promise.done
    leaders.topics["t"][1] = 2
    assert set(leaders.result(promise)) == {P0, P1}
    assert leaders.count(LIST) == 2


def test_what_does_not_pass_fails_at_once(leaders: Leaders) -> None:
    leaders.codes = [29]
    with pytest.raises(TopicAuthorizationFailed, match="t-0"):
        leaders.ask(p0=1, p1=1)


def test_topics_and_partitions_that_are_not_there(leaders: Leaders) -> None:
    with pytest.raises(TopicNotFound, match=r"partitions 0 to 1, there is no 7"):
        leaders.ask(p7=1, timeout_s=2)
    promise = list_offsets(leaders.network_client, {TopicPartition("u", 0): 1}, read_committed=False, timeout_s=2)
    with pytest.raises(TopicNotFound, match="'u' does not exist"):
        leaders.result(promise)


def test_nobody_there(leaders: Leaders) -> None:
    leaders.stop(1)
    leaders.stop(2)
    with pytest.raises(OperationTimedOut, match="gave up after 2 s") as raised:
        leaders.ask(p0=1, timeout_s=2)
    assert raised.value.attempts


def test_ends_of_epochs(leaders: Leaders) -> None:
    assert leaders.result(epoch_ends(leaders.network_client, {P0: 2, P1: 3}, 5)) == {P0: (2, 100), P1: (3, 100)}
    asked = {asked.node_id: asked.request for asked in leaders.asked if asked.api_key == EPOCHS}
    assert asked[1].topics[0].partitions[0].current_leader_epoch == 4
