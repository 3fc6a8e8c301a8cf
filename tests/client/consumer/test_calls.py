"""The calls of a consumer that wait for brokers, on a simulated cluster."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.consumer.calls import OffsetAndTimestamp, read_offsets, read_topics
from barnabas.client.offset_messages import OffsetAndMetadata
from barnabas.errors import CoordinatorLoadInProgress, OperationTimedOut, TopicNotFound, UsageError
from barnabas.protocol.apis import ApiKey
from barnabas.types import TopicPartition
from simulation.cluster import Cluster
from simulation.consumer import SimulatedConsumer, virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COORDINATOR_LOADING = 14


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster({"t": 2}, nodes=2, initial_rebalance_delay_ms=0)
    cluster.log("t", 0).append(*(b"%d" % number for number in range(10)))
    cluster.written()
    with virtual_time(cluster):
        yield cluster


@pytest.fixture
def consumer(cluster: Cluster) -> SimulatedConsumer:
    consumer = SimulatedConsumer(cluster, "c", group_id="g", enable_auto_commit=False, max_poll_records=4)
    consumer.assign([T0, T1])
    return consumer


def test_a_commit_without_offsets_takes_the_delivered_records(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    assert len(consumer.poll(5)) == 4
    consumer.commit()
    assert cluster.committed("g")[T0] == 4


def test_a_commit_during_an_iteration_includes_the_current_record(
    cluster: Cluster, consumer: SimulatedConsumer
) -> None:
    for record in consumer:
        if record.offset == 6:
            break
    consumer.commit()
    assert cluster.committed("g")[T0] == 7


def test_a_commit_of_a_record_takes_all_before_it(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    records = consumer.poll(5)
    consumer.commit(records[1])
    assert cluster.committed("g") == {T0: 2}


def test_a_commit_of_offsets(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    consumer.commit({("t", 0): 3, T1: OffsetAndMetadata(0, "note")})
    assert cluster.committed("g") == {T0: 3, T1: 0}
    assert consumer.committed([T0, T1, TopicPartition("t", 5)]) == {
        T0: OffsetAndMetadata(3),
        T1: OffsetAndMetadata(0, "note"),
        TopicPartition("t", 5): None,
    }


def test_a_commit_is_retried_until_its_timeout(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    cluster.add_fault(ApiKey.OFFSET_COMMIT, COORDINATOR_LOADING, COORDINATOR_LOADING)
    consumer.commit({T0: 5})
    assert cluster.committed("g") == {T0: 5}
    cluster.add_fault(ApiKey.OFFSET_COMMIT, *[COORDINATOR_LOADING] * 1_000)
    began = cluster.now
    with pytest.raises(CoordinatorLoadInProgress):
        consumer.commit({T0: 6}, timeout=2)
    assert 1 < cluster.now - began <= 2
    assert cluster.committed("g") == {T0: 5}


def test_commits_need_a_group(cluster: Cluster) -> None:
    consumer = SimulatedConsumer(cluster, "c")
    with pytest.raises(UsageError, match=r"group\.id"):
        consumer.commit({T0: 1})
    with pytest.raises(UsageError, match=r"group\.id"):
        consumer.committed([T0])


def test_the_position_is_behind_the_last_delivered_record(consumer: SimulatedConsumer) -> None:
    assert consumer.position(T0) == 0
    consumer.poll(5)
    assert consumer.position(("t", 0)) == 4
    assert consumer.position(T1) == 0


def test_a_position_that_no_broker_knows_in_time(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    for node_id in (1, 2):
        cluster.stop(node_id)
    with pytest.raises(OperationTimedOut, match=re.escape("no position of t-0 within 3 s")):
        consumer.position(T0, 3)


def test_the_ends_of_logs(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 10, T1: 0}


def test_a_time_behind_the_last_record_has_no_offset(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    now_ms = int(cluster.scheduler.wall_ms())
    found = consumer.offsets_for_times({T0: 0, T1: now_ms + 1_000_000})
    assert found[T1] is None
    first = found[T0]
    assert isinstance(first, OffsetAndTimestamp)
    assert first.offset == 0


def test_partitions_of_a_topic(cluster: Cluster, consumer: SimulatedConsumer) -> None:
    views = consumer.partitions_for("t")
    assert [view.partition for view in views] == [0, 1]
    assert [view.leader for view in views] == [cluster.topics["t"][0], cluster.topics["t"][1]]
    with pytest.raises(TopicNotFound):
        consumer.partitions_for("nowhere", 2)


def test_texts_that_begin_with_a_circumflex_match_beside_names() -> None:
    assert read_topics("orders") == ["orders"]
    assert read_topics(["orders", "bills"]) == ["orders", "bills"]
    pattern = read_topics(["^orders-", "bills"])
    assert not isinstance(pattern, list)
    matches = [name for name in ("orders-1", "my-orders-1", "bills", "bills-2") if pattern.fullmatch(name)]
    assert matches == ["orders-1", "bills"]
    compiled = re.compile("o.*")
    assert read_topics(compiled) is compiled


@pytest.mark.parametrize("given", ["^(", [re.compile("a")], [""], 5])
def test_topics_that_are_refused(given: Any) -> None:
    with pytest.raises(UsageError):
        read_topics(given)


def test_offsets_to_commit() -> None:
    assert read_offsets(None) is None
    assert read_offsets({("t", 0): 5}) == {T0: OffsetAndMetadata(5)}
    with pytest.raises(UsageError):
        read_offsets({("t", 0): -1})
