"""Offsets asked from leaders that move, forget and refuse."""

from typing import Any

import pytest

from barnabas.client.fetch.list_offsets import epoch_ends, list_offsets
from barnabas.client.offset_messages import EARLIEST, LATEST, PartitionOffset
from barnabas.errors import LeaderNotAvailable, OperationTimedOut, TopicAuthorizationFailed, TopicNotFound
from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import SingleClientCluster

NOT_LEADER, FENCED_EPOCH = 6, 74


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Leaders(SingleClientCluster):
    """Two brokers lead t-0 and t-1, in the epochs 4 and 5. Each partition has ten records of each timestamp up to 9."""

    def __init__(self) -> None:
        super().__init__({"t": 2}, nodes=2)
        for partition, leader_epoch in ((P0, 4), (P1, 5)):
            log = self.log(*partition)
            log.leader_epoch = leader_epoch - 1
            for timestamp in range(10):
                log.append(*[b"value"] * 10, timestamp=timestamp)
            log.leader_epoch = leader_epoch

    def ask(self, *, timeout_s: float = 30.0, **partitions: int) -> Any:
        wanted = {TopicPartition("t", int(name[1:])): timestamp for name, timestamp in partitions.items()}
        return self.result(list_offsets(self.network_client, wanted, read_committed=False, timeout_s=timeout_s))


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


def test_each_leader_is_asked_once(leaders: Leaders) -> None:
    began = leaders.now
    assert leaders.ask(p0=3, p1=4) == {P0: PartitionOffset(30, 3, 4), P1: PartitionOffset(40, 4, 5)}
    assert (leaders.count(ApiKey.LIST_OFFSETS), leaders.now) == (2, began)
    assert leaders.ask(p0=LATEST)[P0].offset == 100
    (request,) = [received.request for received in leaders.requests[-1:]]
    assert (request.isolation_level, request.timeout_ms) == (0, 30_000)
    wanted = list_offsets(leaders.network_client, {P0: EARLIEST}, read_committed=True, timeout_s=1)
    leaders.result(wanted)
    assert leaders.requests[-1].request.isolation_level == 1


@pytest.mark.parametrize("code", [3, 5, NOT_LEADER, 9, 56, FENCED_EPOCH, 75, 78])
def test_passing_errors_ask_again_with_fresh_metadata(leaders: Leaders, code: int) -> None:
    leaders.ask(p0=1)
    before = leaders.count(ApiKey.METADATA)
    leaders.add_fault(ApiKey.LIST_OFFSETS, code, code)
    assert leaders.ask(p0=1)[P0].offset == 10
    assert leaders.count(ApiKey.METADATA) >= before + 1


def test_a_leader_that_moved_is_found(leaders: Leaders) -> None:
    leaders.ask(p0=1, p1=1)
    leaders.move_leader(P0, 2)
    assert leaders.ask(p0=1, p1=2)[P0] == PartitionOffset(10, 1, 5)


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
    assert leaders.count(ApiKey.LIST_OFFSETS) == 2


def test_what_does_not_pass_fails_at_once(leaders: Leaders) -> None:
    leaders.add_fault(ApiKey.LIST_OFFSETS, 29)
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
    assert leaders.result(epoch_ends(leaders.network_client, {P0: 3, P1: 4}, 5)) == {P0: (3, 100), P1: (4, 100)}
    asked = {
        received.node_id: received.request
        for received in leaders.requests
        if received.api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH
    }
    assert asked[1].topics[0].partitions[0].current_leader_epoch == 4


def test_the_partition_without_a_leader_is_named(leaders: Leaders) -> None:
    leaders.topics["t"][1] = -1
    with pytest.raises(LeaderNotAvailable, match=r"t-1 has no leader \(replicas on brokers 1, 2\)"):
        leaders.ask(p0=1, p1=2, timeout_s=3)
