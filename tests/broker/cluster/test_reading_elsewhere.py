"""Clients that ask the wrong broker, or read in their rack: KIP-951, KIP-392 and KIP-881 over the wire."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Consumer, Producer
from barnabas.config.broker_settings import RACK_AWARE
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.testing import Cluster
from broker.sent_requests import batch, fetch, produce, values
from broker.wire import Wire

NOT_LEADER = 6
FENCED_LEADER_EPOCH = 74


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, racks=["a", "b"], settings={"replica.selector.class": RACK_AWARE}) as cluster:
        cluster.create_topic("t", replication_factor=2)
        cluster.wait_in_sync()
        for node_id in (2, 1) if cluster.leader("t") == 1 else (1,):  # so that the leader epoch is not the first one
            cluster.move_leader("t", 0, to=node_id)
            cluster.wait_in_sync()
        with Wire(cluster.broker(1)) as wire:
            answer = wire.ask(produce(cluster.broker(1), {0: batch(b"x", b"y")}), 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
        yield cluster


def ask(cluster: Cluster, node_id: int, version: int, *, rack: str = "", epoch: int = -1, wait_ms: int = 0) -> Any:
    request: FetchRequest = fetch(cluster.broker(node_id), {0: 0}, version)
    request.rack_id, request.max_wait_ms = rack, wait_ms
    request.topics[0].partitions[0].current_leader_epoch = epoch
    with Wire(cluster.broker(node_id)) as wire:
        return wire.ask(request, version)


def only(answer: Any) -> Any:
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


def port_of(cluster: Cluster, node_id: int) -> int:
    return int(cluster.broker(node_id).bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize("version", [10, 12, 13])
def test_a_refused_produce_names_the_leader(cluster: Cluster, version: int) -> None:
    with Wire(cluster.broker(2)) as wire:
        answer = wire.ask(produce(cluster.broker(2), {0: batch(b"z")}, version), version)
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == NOT_LEADER
    assert partition.current_leader.leader_id == 1
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(1, port_of(cluster, 1))]


def test_an_old_produce_is_refused_without(cluster: Cluster) -> None:
    with Wire(cluster.broker(2)) as wire:
        answer = wire.ask(produce(cluster.broker(2), {0: batch(b"z")}), 9)
    assert answer.responses[0].partition_responses[0].error_code == NOT_LEADER
    assert list(answer.node_endpoints) == []


@pytest.mark.parametrize("version", [16, 17, 18])
def test_a_refused_fetch_names_the_leader(cluster: Cluster, version: int) -> None:
    answer = ask(cluster, 2, version, epoch=0)
    partition = only(answer)
    assert partition.error_code == FENCED_LEADER_EPOCH
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch > 0) == (1, True)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(1, port_of(cluster, 1))]


def test_a_consumer_is_sent_to_the_replica_in_its_rack(cluster: Cluster) -> None:
    def is_sent() -> bool:
        return only(ask(cluster, 1, 12, rack="b", wait_ms=60_000)).preferred_read_replica == 2

    cluster.wait_for(is_sent, what="the follower has the records")
    partition = only(ask(cluster, 1, 12, rack="b", wait_ms=60_000))
    assert (partition.error_code, partition.records) == (0, b"")


@pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
def test_others_read_from_the_leader(cluster: Cluster, rack: str) -> None:
    partition = only(ask(cluster, 1, 12, rack=rack))
    assert partition.preferred_read_replica == -1
    assert values(partition.records) == [b"x", b"y"]


def test_a_follower_serves_what_is_committed(cluster: Cluster) -> None:
    cluster.wait_for(lambda: only(ask(cluster, 2, 12)).records, what="the follower knows the high watermark")
    partition = only(ask(cluster, 2, 12))
    assert (partition.error_code, partition.high_watermark) == (0, 2)
    assert values(partition.records) == [b"x", b"y"]


def test_a_consumer_too_old_for_that_is_sent_to_the_leader(cluster: Cluster) -> None:
    assert only(ask(cluster, 2, 10)).error_code == NOT_LEADER


def test_our_consumer_reads_from_its_rack(cluster: Cluster) -> None:
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, client_rack="b", auto_offset_reset="earliest", group_id="g"
    ) as consumer:
        consumer.subscribe(["t"])
        seen: list[bytes | None] = []
        cluster.wait_for(lambda: seen.extend(r.value for r in consumer.poll(0.1)) or len(seen) >= 2)
    assert seen == [b"x", b"y"]


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_members_of_a_group_get_what_is_in_their_racks(cluster: Cluster, strategy: str) -> None:
    """Without a look at racks each would have one partition of either rack."""
    topic = f"spread-{strategy}"
    here = {"a": {0, 2}, "b": {1, 3}}
    cluster.create_topic(topic, assignments={0: [1], 1: [2], 2: [1], 3: [2]})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(4):
            producer.send(topic, b"v", partition=number)

    def member(rack: str) -> Consumer:
        return Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            client_rack=rack,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id=topic,
            partition_assignment_strategy=[strategy],
        )

    with member("a") as first, member("b") as second:
        consumers = {"a": first, "b": second}
        seen: dict[str, set[int]] = {"a": set(), "b": set()}
        for consumer in consumers.values():
            consumer.subscribe([topic])

        def is_near() -> bool:
            for rack, consumer in consumers.items():
                seen[rack] |= {record.partition for record in consumer.poll(0.1)}
            return all(
                {partition.partition for partition in consumer.assignment()} == here[rack] <= seen[rack]
                for rack, consumer in consumers.items()
            )

        cluster.wait_for(is_near, what="each member reads what is in its rack")
