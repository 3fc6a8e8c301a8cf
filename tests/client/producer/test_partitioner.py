"""The partitions of records that name none."""

import itertools

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import SILENT
from simulation.producer import SimulatedProducer


def test_keys_go_where_java_sends_them() -> None:
    producing = SimulatedProducer(partitions=7)
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107, b"": 275646681}  # from Kafka's UtilsTest
    for key, number in hashes.items():
        assert producing.send(b"v", key=key).partition == (number & 0x7FFFFFFF) % 7


def test_records_without_a_key_fill_one_partition_after_the_other() -> None:
    producing = SimulatedProducer(partitions=4, batch_size=1000, linger_ms=1000)
    where = [producing.send(b"x" * 50).partition for _ in range(400)]
    changes = sum(one != other for one, other in itertools.pairwise(where))
    assert set(where) == {0, 1, 2, 3}
    assert 10 < changes < 60


def test_a_slow_leader_gets_fewer_records() -> None:
    producing = SimulatedProducer(nodes=2, partitions=2, batch_size=300, linger_ms=1000)
    producing.send(b"a", partition=0)
    producing.flush()
    counts = {0: 0, 1: 0}
    for _ in range(2000):
        counts[producing.send(b"x" * 50).partition] += 1
        producing.cluster.turn()
        for link in [link for link in producing.cluster.links.values() if link.pending and link.node_id == 1]:
            producing.cluster.answer(link)
    assert counts[0] > 2 * counts[1]


@pytest.mark.parametrize(("rack", "is_near"), [("b", {2}), ("none is there", {1, 2})])
def test_records_without_a_key_go_to_leaders_in_the_rack_of_the_client(rack: str, is_near: set[int]) -> None:
    producing = SimulatedProducer(
        nodes=2, partitions=6, batch_size=200, linger_ms=1000, partitioner_rack_aware=True, client_rack=rack
    )
    metadata = producing.cluster.network_client.metadata
    nodes = sorted(metadata.cluster.brokers)
    racks = dict(zip(nodes, ("a", "b"), strict=True))
    metadata.cluster = metadata.cluster._replace(
        brokers={node: broker._replace(rack=racks[node]) for node, broker in metadata.cluster.brokers.items()}
    )
    where = {producing.send(b"x" * 50).partition for _ in range(400)}
    led = {number: nodes.index(metadata.leader(TopicPartition("t", number))) + 1 for number in range(6)}
    assert where == {number for number, place in led.items() if place in is_near}


@pytest.mark.parametrize(("adaptive", "places"), [(True, {1}), (False, {2})])
def test_a_rack_whose_leaders_all_hang_is_left(adaptive: bool, places: set[int]) -> None:
    producing = SimulatedProducer(
        nodes=2,
        partitions=4,
        batch_size=200,
        partitioner_rack_aware=True,
        client_rack="b",
        partitioner_availability_timeout_ms=100,
        partitioner_adaptive_partitioning_enable=adaptive,
        max_in_flight_requests_per_connection=1,
    )
    metadata, produce = producing.cluster.network_client.metadata, producing.cluster.handlers[ApiKey.PRODUCE]
    producing.cluster.handlers[ApiKey.PRODUCE] = lambda received: SILENT if received.node_id == 2 else produce(received)
    metadata.cluster = metadata.cluster._replace(
        brokers={node: broker._replace(rack="ab"[node - 1]) for node, broker in metadata.cluster.brokers.items()}
    )

    def leaders() -> set[int]:
        sent = [producing.send(b"x" * 50).partition for _ in range(40)]
        late = sent[20:]  # the first ones fill the batch that is open
        return {metadata.leader(TopicPartition("t", partition)) for partition in late}

    assert leaders() == {2}
    producing.run(seconds=1)
    assert leaders() == places


def test_round_robin() -> None:
    producing = SimulatedProducer(partitions=3, partitioner_class="round_robin")
    where = [producing.send(b"v").partition for _ in range(6)]
    assert sorted(where[:3]) == [0, 1, 2]
    assert where[:3] == where[3:]
