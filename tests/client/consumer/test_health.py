"""The health of a consumer on a simulated cluster, from its subscription to its close."""

from collections.abc import Iterator

import pytest

from barnabas.client.consumer.health import Health
from barnabas.types import TopicPartition
from simulation.cluster import Cluster
from simulation.consumer import SimulatedConsumer, virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster({"t": 2}, initial_rebalance_delay_ms=0)
    for partition in (0, 1):
        cluster.log("t", partition).append(*[b"v"] * 10)
    with virtual_time(cluster):
        yield cluster


def test_by_hand_the_lag_is_that_behind_delivered_records(cluster: Cluster) -> None:
    consumer = SimulatedConsumer(cluster, "c")
    assert consumer.health().state == "unsubscribed"
    assert not consumer.health().is_well
    consumer.assign([T0, T1])
    health = consumer.health()
    assert (health.state, health.assigned) == ("assigned by hand", (T0, T1))
    assert (health.without_position, health.total_lag) == ((T0, T1), None)
    consumer.pause([T1])
    consumer.seek(T1, 7)
    assert len(consumer.poll(60, max_records=4)) == 4
    health = consumer.health()
    assert health.is_well
    assert (health.paused, health.lag[T0]) == ((T1,), 6)
    assert (health.group_id, health.deadline, health.rebalances) == (None, None, ())
    consumer.close()


def test_a_member_tells_its_group_and_its_next_deadline(cluster: Cluster) -> None:
    consumer = SimulatedConsumer(cluster, "c", "t", group_id="g", max_poll_interval_ms=60_000)
    assert consumer.health().state == "unjoined"
    while not consumer.poll(1):
        pass
    cluster.advance(20)
    health = consumer.health()
    assert (health.state, health.group_id, health.generation_id, health.is_leader) == ("stable", "g", 1, True)
    assert health.member_id
    assert health.coordinator == cluster_address(cluster)
    assert health.deadline == "leaves the group (max.poll.interval.ms)"
    assert health.since_poll == pytest.approx(20, abs=0.1)
    assert health.deadline_in == pytest.approx(40, abs=0.1)
    (rebalance,) = health.rebalances
    assert (rebalance.generation_id, rebalance.setbacks) == (1, ())
    assert rebalance.seconds_ago == pytest.approx(20, abs=5)
    consumer.enforce_rebalance("for the test")
    assert consumer.health().rejoining == "for the test"
    assert not consumer.health().is_well
    consumer.close()


def cluster_address(cluster: Cluster) -> str:
    broker = cluster.clients[0].network_client.metadata.cluster.brokers[cluster.coordinator]
    return f"{broker.host}:{broker.port}"


def test_a_broker_that_is_away_is_named(cluster: Cluster) -> None:
    consumer = SimulatedConsumer(cluster, "c")
    consumer.assign([T0])
    cluster.stop(1)
    assert consumer.poll(5) == []
    health = consumer.health()
    assert "tcp" in {attempt.stage for attempt in health.attempts}
    assert not health.is_well


def test_the_lag_is_unknown_as_long_as_that_of_one_partition_is() -> None:
    fields = dict.fromkeys(Health._fields, None) | {"lag": {T0: 3, T1: None}}
    assert Health(**fields).total_lag is None  # type: ignore[arg-type]
    assert Health(**fields | {"lag": {T0: 3, T1: 4}}).total_lag == 7  # type: ignore[arg-type]
