"""A whole consumer that reads from the replica in its own rack (KIP-392), as long as that serves it."""

from collections.abc import Iterator
from itertools import groupby

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import Cluster
from simulation.consumer import SimulatedConsumer, virtual_time

T0 = TopicPartition("t", 0)
LEADER, FOLLOWER = 1, 2
MAX_AGE_S = 60


class RackCluster(Cluster):
    """A cluster whose leader sends readers of rack `here` to the other broker."""

    def __init__(self) -> None:
        super().__init__({"t": 1}, nodes=2, initial_rebalance_delay_ms=0)
        self.rack = "here"
        self.preferred_replicas[T0] = FOLLOWER
        self.readable_followers = {FOLLOWER}

    @property
    def asked(self) -> list[int]:
        """The broker of each Fetch, once as long as it stays the same."""
        fetches = (received.node_id for received in self.requests if received.api_key == ApiKey.FETCH)
        return [node_id for node_id, _ in groupby(fetches)]


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
    cluster.preferred_replicas.clear()
    assert consumer.poll(MAX_AGE_S + 5) == []
    assert cluster.asked == [LEADER, FOLLOWER, LEADER]
    write(cluster)
    assert read(consumer) == [3, 4, 5]


def test_a_replica_that_is_behind_sends_back_to_the_leader_and_nothing_is_reset(cluster: RackCluster) -> None:
    consumer = reader(cluster)
    write(cluster)
    read(consumer)
    cluster.follower_ends[T0] = 1
    cluster.preferred_replicas.clear()
    write(cluster)
    assert read(consumer) == [3, 4, 5]
    assert cluster.asked == [LEADER, FOLLOWER, LEADER]


def test_a_replica_that_is_gone_is_left_for_the_leader(cluster: RackCluster) -> None:
    consumer = reader(cluster)
    write(cluster)
    read(consumer)
    cluster.preferred_replicas.clear()
    cluster.stop(FOLLOWER)
    write(cluster)
    assert read(consumer) == [3, 4, 5]
    assert cluster.asked == [LEADER, FOLLOWER, LEADER]


def test_a_replica_that_metadata_does_not_know_is_not_asked_for_without_a_pause(cluster: RackCluster) -> None:
    """The leader names it each time it is asked."""
    cluster.preferred_replicas[T0] = 7
    write(cluster)
    consumer = reader(cluster)
    assert consumer.poll(5) == []
    assert cluster.asked == [LEADER]
    assert cluster.count(ApiKey.FETCH) < 100
    cluster.preferred_replicas[T0] = FOLLOWER
    assert read(consumer) == [0, 1, 2]


def test_a_log_that_was_cut_is_read_on_from_where_it_parts(cluster: RackCluster) -> None:
    """OffsetForLeaderEpoch, asked of the new leader: the replica of the rack is not believed about that."""
    consumer = reader(cluster, "there")
    write(cluster, 2)
    write(cluster, 3)
    assert read(consumer, 5) == [0, 1, 2, 3, 4]
    cluster.log(*T0).truncate(2)
    cluster.move_leader(T0, FOLLOWER)
    write(cluster, 2)
    assert read(consumer, 2) == [2, 3]
