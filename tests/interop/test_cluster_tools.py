"""Kafka's own tools for replicas and leaders, against three brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.testing import Cluster

from .conftest import Drivers
from .harness.clients import KAFKA_TOOLS
from .harness.tools import KafkaTools


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster_tools(drivers: Drivers, cluster: Cluster) -> KafkaTools:
    return KafkaTools(drivers(KAFKA_TOOLS), cluster.bootstrap_servers)


def replicas(cluster: Cluster) -> list[list[int]]:
    return [list(partition.replicas) for partition in cluster.admin.list_topics()[0].in_order()]


def test_under_replicated_partitions(cluster: Cluster, cluster_tools: KafkaTools) -> None:
    dead, *_ = (node_id for node_id in cluster.node_ids if node_id != cluster.controller)
    cluster.create_topic("t", assignments={0: [1, 2, 3]})
    cluster.create_topic("u", assignments={0: [node_id for node_id in cluster.node_ids if node_id != dead]})
    assert cluster_tools.run("kafka-topics", "--describe", "--under-replicated-partitions").lines == []
    cluster.kill(dead)
    cluster.wait_for(lambda: dead not in cluster.in_sync_replicas("t"), what="the ISR without the dead broker")
    (line,) = cluster_tools.run("kafka-topics", "--describe", "--under-replicated-partitions").lines
    assert "Topic: t" in line
    assert "Partition: 0" in line
    at_minimum = cluster_tools.run("kafka-topics", "--describe", "--at-min-isr-partitions").out
    assert "Topic: t" in at_minimum


def test_preferred_leaders(cluster: Cluster, cluster_tools: KafkaTools) -> None:
    cluster.create_topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.move_leader("t", 0, 3)
    told = cluster_tools.run(
        "kafka-leader-election", "--election-type", "preferred", "--topic", "t", "--partition", "0"
    )
    assert "Successfully completed leader election (PREFERRED) for partitions t-0" in told.out
    assert cluster.leader("t") == 1


def test_reassignment(cluster: Cluster, cluster_tools: KafkaTools, tmp_path: Path) -> None:
    cluster.create_topic("t", assignments={0: [1], 1: [2]})
    plan, topics = tmp_path / "plan.json", tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    made = cluster_tools.run(
        *("kafka-reassign-partitions", "--topics-to-move-json-file", str(topics), "--broker-list", "3", "--generate")
    )
    assert [entry["replicas"] for entry in json.loads(made.lines[-1])["partitions"]] == [[3], [3]]
    entries = [
        {"topic": "t", "partition": 0, "replicas": [3, 1]},
        {"topic": "t", "partition": 1, "replicas": [3, 2, 1]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    begun = cluster_tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started partition reassignments for t-0,t-1" in begun.out

    def verify() -> str:
        return cluster_tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify").out

    cluster.wait_for(lambda: verify().count("is completed") == 2, what="the end of both reassignments")
    assert replicas(cluster) == [[3, 1], [3, 2, 1]]
    assert "No partition reassignments found" in cluster_tools.run("kafka-reassign-partitions", "--list").out


def test_a_throttled_reassignment(cluster: Cluster, cluster_tools: KafkaTools, tmp_path: Path) -> None:
    cluster.create_topic("t", assignments={0: [1]})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(20):
            producer.send("t", b"x" * 1000).result(30)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3]}]}')

    def run(*arguments: str) -> str:
        return cluster_tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), *arguments).out

    def throttles(kind: str, name: str) -> str:
        return cluster_tools.run("kafka-configs", "--entity-type", kind, "--entity-name", name, "--describe").out

    begun = run("--execute", "--throttle", "1")
    assert "The inter-broker throttle limit was set to 1 B/s" in begun
    assert "Successfully started partition reassignment for t-0" in begun
    assert "leader.replication.throttled.replicas=0:1" in throttles("topics", "t")
    assert "follower.replication.throttled.replicas=0:3" in throttles("topics", "t")
    assert "follower.replication.throttled.rate=1" in throttles("brokers", "3")
    assert "is still in progress" in run("--verify")
    assert "throttle limit was set to 100000000 B/s" in run("--execute", "--additional", "--throttle", "100000000")
    cluster.wait_for(lambda: replicas(cluster) == [[3]], what="the end of the reassignment")
    ended = run("--verify")
    assert "Reassignment of partition t-0 is completed" in ended
    assert "Clearing broker-level throttles on brokers 1,2,3" in ended
    assert "Clearing topic-level throttles on topic t" in ended
    for kind, name in (("topics", "t"), ("brokers", "1"), ("brokers", "3")):
        assert "throttled" not in throttles(kind, name)
