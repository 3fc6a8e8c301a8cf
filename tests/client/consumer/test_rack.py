"""A whole consumer that reads from the replica in its own rack (KIP-392), as long as that serves it."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.types import TopicPartition
from simulation.consumer_cluster import OFFSET_OUT_OF_RANGE, Cluster
from simulation.consumer_front import SimulatedConsumer, virtual_time

T0 = TopicPartition("t", 0)
LEADER, FOLLOWER = 1, 2
MAX_AGE_S = 60


class RackCluster(Cluster):
    """Its leader sends readers of rack `here` to the other broker, which has the log up to `reach`."""

    def __init__(self) -> None:
        super().__init__({"t": 1}, initial_rebalance_delay_ms=0)
        self.topics["t"][0] = LEADER
        self.sends = True
        self.closest = FOLLOWER
        self.reach = 1_000
        self.requests = 0
        self.asked: list[int] = []
        """The broker of each request, as often as they come from different ones."""

    def _read(self, asked: Any, *, at_once: bool = False) -> Any:
        self._rack = asked.request.rack_id
        self.requests += 1
        if self.asked[-1:] != [asked.node_id]:
            self.asked.append(asked.node_id)
        return super()._read(asked, at_once=at_once)

    def _fenced(self, node_id: int, where: TopicPartition, epoch: int) -> int:
        return 0 if node_id == FOLLOWER else super()._fenced(node_id, where, epoch)

    def _read_partition(self, node_id: int, where: TopicPartition, asked: Any, read_committed: bool) -> Any:
        answer = super()._read_partition(node_id, where, asked, read_committed)
        if node_id == LEADER and self.sends and self._rack == "here":
            answer.records, answer.preferred_read_replica = b"", self.closest
        elif node_id == FOLLOWER and asked.fetch_offset > self.reach:
            answer.records, answer.error_code = b"", OFFSET_OUT_OF_RANGE
        return answer


@pytest.fixture
def cluster() -> Iterator[RackCluster]:
    cluster = RackCluster()
    with virtual_time(cluster):
        yield cluster


def reader(cluster: Cluster, rack: str = "here") -> SimulatedConsumer:
    consumer = SimulatedConsumer(cluster, "c", client_rack=rack, metadata_max_age_ms=MAX_AGE_S * 1000)
    consumer.assign([T0])
    return consumer


def write(cluster: Cluster, count: int = 3) -> None:
    cluster.log(*T0).append(*(b"v" for _ in range(count)))
    cluster.written()


def read(consumer: SimulatedConsumer, count: int = 3) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        records = consumer.poll(10)
        assert records, found
        found += [record.offset for record in records]
    return found


def test_records_come_from_the_replica_of_the_rack(cluster: RackCluster) -> None:
    consumer = reader(cluster)
    for first in (0, 3, 6):
        write(cluster)
        assert read(consumer) == [first, first + 1, first + 2]
    assert cluster.asked == [LEADER, FOLLOWER]


def test_readers_of_other_racks_stay_with_the_leader(cluster: RackCluster) -> None:
    write(cluster)
    assert read(reader(cluster, "there")) == [0, 1, 2]
    assert cluster.asked == [LEADER]


def test_the_leader_is_asked_again_once_its_word_is_old(cluster: RackCluster) -> None:
    consumer = reader(cluster)
    write(cluster)
    read(consumer)
    cluster.sends = False
    assert consumer.poll(MAX_AGE_S + 5) == []
    assert cluster.asked == [LEADER, FOLLOWER, LEADER]
    write(cluster)
    assert read(consumer) == [3, 4, 5]


def test_a_replica_that_is_behind_sends_back_to_the_leader_and_nothing_is_reset(cluster: RackCluster) -> None:
    consumer = reader(cluster)
    write(cluster)
    read(consumer)
    cluster.reach, cluster.sends = 1, False
    write(cluster)
    assert read(consumer) == [3, 4, 5]
    assert cluster.asked == [LEADER, FOLLOWER, LEADER]


def test_a_replica_that_is_gone_is_left_for_the_leader(cluster: RackCluster) -> None:
    consumer = reader(cluster)
    write(cluster)
    read(consumer)
    cluster.sends = False
    cluster.stop(FOLLOWER)
    write(cluster)
    assert read(consumer) == [3, 4, 5]
    assert cluster.asked == [LEADER, FOLLOWER, LEADER]


def test_a_replica_that_metadata_does_not_know_is_not_asked_for_without_a_pause(cluster: RackCluster) -> None:
    """The leader names it each time it is asked."""
    cluster.closest = 7
    write(cluster)
    consumer = reader(cluster)
    assert consumer.poll(5) == []
    assert cluster.asked == [LEADER]
    assert cluster.requests < 100
    cluster.closest = FOLLOWER
    assert read(consumer) == [0, 1, 2]


def test_a_log_that_was_cut_is_read_on_from_where_it_parts(cluster: RackCluster) -> None:
    """OffsetForLeaderEpoch, asked of the new leader: the replica of the rack is not believed about that."""
    consumer = reader(cluster, "there")
    write(cluster, 2)
    write(cluster, 3)
    assert read(consumer, 5) == [0, 1, 2, 3, 4]
    log = cluster.log(*T0)
    log.batches, log.end = log.batches[:1], 2
    cluster.move_leader(T0, FOLLOWER)
    write(cluster, 2)
    assert read(consumer, 2) == [2, 3]
