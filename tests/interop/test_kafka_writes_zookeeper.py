"""What the tools of Apache Kafka 2.4.1 write into ZooKeeper is carried out by a cluster of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import MessageTooLarge
from barnabas.testing import Cluster
from zookeeper_server import ZooKeeperServer, another_program

from .harness.old_tools import needs_old_tools, run_tool

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")

from kazoo.client import KazooClient

pytestmark = needs_old_tools


@pytest.fixture(scope="module")
def connect(zookeeper: ZooKeeperServer) -> str:
    return zookeeper.new_path()


@pytest.fixture(scope="module")
def cluster(connect: str) -> Iterator[Cluster]:
    with Cluster(processes=True, settings={"zookeeper.connect": connect}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tree(connect: str, cluster: Cluster) -> Iterator[KazooClient]:
    with another_program(connect) as client:
        yield client


@pytest.fixture(scope="module")
def tool(connect: str, cluster: Cluster) -> Callable[..., str]:
    return lambda name, *arguments: run_tool(connect, name, *arguments)


def partitions_of(cluster: Cluster, topic: str) -> list[tuple[int, ...]]:
    """The replicas of each partition, as clients are told."""
    views = {view.name: view for view in cluster.admin.list_topics()}
    partitions = views[topic].partitions if topic in views else {}
    return [tuple(partitions[number].replicas) for number in sorted(partitions)]


def config_of(cluster: Cluster, kind: str, name: str) -> dict[str, str | None]:
    (entries,) = cluster.admin.describe_configs([(kind, name)]).values()
    return {entry.name: entry.value for entry in entries.values()}


def write_and_read(cluster: Cluster, topic: str, partitions: int) -> None:
    with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(partitions):
            producer.send(topic, b"%d" % number, partition=number).result(timeout=60)
    assert {record.value for record in cluster.records(topic)} == {b"%d" % number for number in range(partitions)}


def test_topics_are_created_and_grow(cluster: Cluster, tree: KazooClient, tool: Callable[..., str]) -> None:
    setting = ("--config", "retention.ms=86400000")
    assert "Created topic created." in tool(
        "TopicCommand", "--create", "--topic", "created", "--partitions", "2", "--replication-factor", "3", *setting
    )
    cluster.wait_for(lambda: len(partitions_of(cluster, "created")) == 2, what="the topic")
    assert all(sorted(replicas) == [1, 2, 3] for replicas in partitions_of(cluster, "created"))
    assert config_of(cluster, "topic", "created")["retention.ms"] == "86400000"
    assert "Adding partitions succeeded!" in tool("TopicCommand", "--alter", "--topic", "created", "--partitions", "4")
    cluster.wait_for(lambda: len(partitions_of(cluster, "created")) == 4, what="the partitions")
    write_and_read(cluster, "created", 4)
    described = tool("TopicCommand", "--describe", "--topic", "created")
    assert described.count("Leader:") == 4
    assert "Leader: none" not in described


def test_replicas_may_be_chosen(cluster: Cluster, tool: Callable[..., str]) -> None:
    tool("TopicCommand", "--create", "--topic", "chosen", "--replica-assignment", "3:1,1:2")
    cluster.wait_for(lambda: partitions_of(cluster, "chosen") == [(3, 1), (1, 2)], what="the topic")


def test_topics_are_deleted(cluster: Cluster, tree: KazooClient, tool: Callable[..., str]) -> None:
    cluster.create_topic("deleted")
    assert "Topic deleted is marked for deletion." in tool("TopicCommand", "--delete", "--topic", "deleted")
    cluster.wait_for(lambda: not partitions_of(cluster, "deleted"), what="the deletion")
    cluster.wait_for(lambda: tree.get_children("/admin/delete_topics") == [], what="the end of the request")
    assert "deleted" not in tool("TopicCommand", "--list").split()


def test_a_deletion_of_no_topic_is_removed(cluster: Cluster, tree: KazooClient) -> None:
    tree.create("/admin/delete_topics/nobody's")
    cluster.wait_for(lambda: tree.get_children("/admin/delete_topics") == [], what="the end of the request")


def tools_notifications(tree: KazooClient) -> list[str]:
    """Returns the notifications that no controller of the cluster has written."""
    paths = [f"/config/changes/{name}" for name in tree.get_children("/config/changes")]
    return [path for path in paths if b"controller_epoch" not in tree.get(path)[0]]


def test_settings_of_topics_are_taken_over(cluster: Cluster, tree: KazooClient, tool: Callable[..., str]) -> None:
    cluster.create_topic("set", configs={"retention.ms": "1000000"})
    entity = ("--entity-type", "topics", "--entity-name", "set")
    tool("ConfigCommand", "--alter", *entity, "--add-config", "max.message.bytes=1234,cleanup.policy=[compact,delete]")
    cluster.wait_for(
        lambda: all(
            cluster.broker(node_id).image.topic_config("set").get("max.message.bytes") == "1234"
            for node_id in cluster.node_ids
        ),
        what="the setting at all brokers",
    )
    found = config_of(cluster, "topic", "set")
    assert (found["cleanup.policy"], found["retention.ms"]) == ("compact,delete", "1000000")
    with pytest.raises(MessageTooLarge), barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as one:
        one.send("set", b"x" * 2000, b"key").result(timeout=60)
    tool("ConfigCommand", "--alter", *entity, "--delete-config", "max.message.bytes,cleanup.policy")
    cluster.wait_for(lambda: config_of(cluster, "topic", "set")["max.message.bytes"] != "1234", what="the default")
    cluster.wait_for(lambda: not tools_notifications(tree), what="the end of the notifications")


@pytest.mark.parametrize("name", ["2", "<default>"])
def test_settings_of_brokers_are_taken_over(
    cluster: Cluster, tree: KazooClient, tool: Callable[..., str], name: str
) -> None:
    entity = ("--entity-type", "brokers", *(("--entity-default",) if name == "<default>" else ("--entity-name", name)))
    setting = "follower.replication.throttled.rate"
    before = config_of(cluster, "broker", "2")[setting]
    tool("ConfigCommand", "--alter", *entity, "--add-config", f"{setting}=12345678")
    cluster.wait_for(lambda: config_of(cluster, "broker", "2")[setting] == "12345678", what="the setting")
    tool("ConfigCommand", "--alter", *entity, "--delete-config", setting)
    cluster.wait_for(lambda: config_of(cluster, "broker", "2")[setting] == before, what="the default")


def test_partitions_are_reassigned(
    cluster: Cluster, tree: KazooClient, tool: Callable[..., str], tmp_path: Path
) -> None:
    tool("TopicCommand", "--create", "--topic", "moved", "--replica-assignment", "1:2,1:2")
    cluster.wait_for(lambda: len(partitions_of(cluster, "moved")) == 2, what="the topic")
    write_and_read(cluster, "moved", 2)
    plan = tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": number, "replicas": [3, 1]} for number in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    given = ("--reassignment-json-file", str(plan))
    done = tool("ReassignPartitionsCommand", "--execute", *given, "--throttle", "100000000")
    assert "Successfully started reassignment of partitions." in done
    cluster.wait_for(lambda: partitions_of(cluster, "moved") == [(3, 1), (3, 1)], what="the reassignment")
    cluster.wait_for(lambda: tree.exists("/admin/reassign_partitions") is None, what="the end of the request")
    verified = tool("ReassignPartitionsCommand", "--verify", *given)
    assert verified.count("completed successfully") == 2
    assert "Throttle was removed." in verified
    cluster.wait_for(
        lambda: not config_of(cluster, "topic", "moved")["leader.replication.throttled.replicas"], what="no throttle"
    )
    assert len(cluster.records("moved")) == 2


def test_a_reassignment_in_progress_is_seen_and_hurried(
    cluster: Cluster, tree: KazooClient, tool: Callable[..., str], tmp_path: Path
) -> None:
    cluster.create_topic("slow", assignments={0: [1, 2]})
    with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(20):
            producer.send("slow", os.urandom(100_000)).result(timeout=60)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [2, 3]}]}))
    given = ("--reassignment-json-file", str(plan))
    tool("ReassignPartitionsCommand", "--execute", *given, "--throttle", "1024")
    cluster.wait_for(lambda: 3 in partitions_of(cluster, "slow")[0], what="the beginning")
    assert "is still in progress" in tool("ReassignPartitionsCommand", "--verify", *given)
    hurried = tool("ReassignPartitionsCommand", "--execute", *given, "--throttle", "100000000")
    assert "There is an existing assignment running." in hurried
    cluster.wait_for(lambda: partitions_of(cluster, "slow") == [(2, 3)], what="the reassignment")
    cluster.wait_for(lambda: tree.exists("/admin/reassign_partitions") is None, what="the end of the request")
    assert "completed successfully" in tool("ReassignPartitionsCommand", "--verify", *given)
    assert len(cluster.records("slow")) == 20


def test_preferred_leaders_are_elected(cluster: Cluster, tree: KazooClient, tool: Callable[..., str]) -> None:
    cluster.create_topic("led", assignments={0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.wait_in_sync()
    for partition in range(2):
        cluster.move_leader("led", partition, 3)
    tool("PreferredReplicaLeaderElectionCommand")
    cluster.wait_for(lambda: [cluster.leader("led", number) for number in range(2)] == [1, 2], what="the elections")
    cluster.wait_for(lambda: tree.exists("/admin/preferred_replica_election") is None, what="the end of the request")


@pytest.mark.parametrize("outage", ["another controller", "a new session"])
def test_what_is_written_when_nobody_looks_is_found(
    cluster: Cluster, tree: KazooClient, tool: Callable[..., str], outage: str
) -> None:
    name = outage.replace(" ", "-")
    controller = cluster.controller
    if outage == "another controller":
        cluster.kill(controller)
    else:
        cluster.pause(controller)
    tool("TopicCommand", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "2")
    if outage == "a new session":
        cluster.resume(controller)
    cluster.wait_for(lambda: len(partitions_of(cluster, name)) == 1, what="the topic")
    if outage == "another controller":
        cluster.start(controller)
    write_and_read(cluster, name, 1)
