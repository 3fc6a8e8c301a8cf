"""The partitions of records that name none."""

import itertools

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


def test_round_robin() -> None:
    producing = SimulatedProducer(partitions=3, partitioner_class="round_robin")
    where = [producing.send(b"v").partition for _ in range(6)]
    assert sorted(where[:3]) == [0, 1, 2]
    assert where[:3] == where[3:]
