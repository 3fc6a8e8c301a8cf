"""`barnabas cluster under-replicated`, and what the other commands show of replicas that are not in sync."""

import json
from uuid import UUID

import pytest

from barnabas import Producer
from barnabas.cli.cluster.under_replicated import under_replicated_rows, with_missing_replicas
from barnabas.cli.framework.replication import is_under_replicated
from barnabas.client.admin.reassignments import PartitionReassignment
from barnabas.connection.cluster import PartitionView, TopicView
from barnabas.testing import Cluster
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run


def test_a_whole_cluster(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]})
    assert in_process("cluster", "under-replicated").stdout == "every replica is in sync\n"
    assert json.loads(in_process("cluster", "under-replicated", "--json").stdout) == []
    report = json.loads(in_process("cluster", "--json").stdout)
    assert (report["controller"], report["partitions"], report["under_replicated"]) == (kafka.controller, 2, 0)
    assert (report["replicas"], report["in_sync_replicas"], report["without_leader"]) == (6, 6, 0)
    rows = [(b["node_id"], b["rack"], b["state"], b["leaders"], b["replicas"]) for b in report["brokers"]]
    assert rows == [(1, "a", "live", 1, 2), (2, "b", "live", 1, 2), (3, "c", "live", 0, 2)]
    text = in_process("cluster").stdout
    assert "2 partitions, none under-replicated; 6 of 6 replicas in sync (100.0%)\n" in text
    header = in_process("topics", "describe", "t").stdout.splitlines()[1].split()
    assert header == ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "SIZE"]


def test_a_dead_broker(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.create_topic("v", assignments={0: [2, 1]})
    kafka.create_topic("u", assignments={0: [1, 3]})
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.in_sync_replicas("u") == {1}, what="the ISR without the dead broker")
    report = json.loads(in_process("cluster", "--json").stdout)
    assert [b["state"] for b in report["brokers"]] == ["live", "live", "fenced"]
    assert (report["under_replicated"], report["replicas"], report["in_sync_replicas"]) == (2, 7, 5)
    rows = json.loads(in_process("cluster", "under-replicated", "--json").stdout)
    seen = [(r["topic"], r["partition"], r["isr"], r["offline_replicas"], r["accepts_acks_all"]) for r in rows]
    assert seen == [("t", 0, [1, 2], [3], True), ("u", 0, [1], [3], False)]
    assert in_process("cluster", "under-replicated", "t").stdout.splitlines()[1].split() == [
        *("t", "0", "1", "1,2,3", "1,2", "-", "3", "accepted"),
    ]
    described = in_process("topics", "describe", "t").stdout.splitlines()
    assert described[1].split()[:5] == ["PARTITION", "LEADER", "REPLICAS", "ISR", "OFFLINE"]
    assert described[2].split()[2:5] == ["1,2,3", "1,2", "3"]
    assert "OFFLINE" not in in_process("topics", "describe", "v").stdout


def test_replicas_that_are_added_are_not_needed_yet(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [1]}, configs={"min.insync.replicas": "2"})
    kafka.kill(3)
    kafka.wait_for(lambda: 3 not in kafka.admin.describe_cluster().brokers, what="the loss of the broker")
    kafka.admin.alter_partition_reassignments({("t", 0): [3]})
    assert json.loads(in_process("cluster", "under-replicated", "--json").stdout) == []
    report = json.loads(in_process("cluster", "--json").stdout)
    assert (report["under_replicated"], report["replicas"], report["in_sync_replicas"]) == (0, 2, 1)
    described = in_process("topics", "describe", "t").stdout.splitlines()
    assert described[1].split()[2:7] == ["REPLICAS", "ISR", "OFFLINE", "ADDING", "REMOVING"]
    assert described[2].split()[2:7] == ["3,1", "1", "3", "3", "1"]
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.send("t", b"1").result(timeout=30)


@pytest.mark.parametrize(
    ("isr", "adding", "is_under", "needed", "accepts"),
    [
        ((1, 2), (), True, 3, False),
        ((1, 2), (3,), False, 2, True),
        ((1,), (3,), True, 2, False),
        ((1, 3), (3,), False, 3, False),
        ((1, 2), (4,), True, 3, False),
    ],
)
def test_replicas_that_a_reassignment_adds_are_left_out_of_the_count(
    isr: tuple[int, ...], adding: tuple[int, ...], is_under: bool, needed: int, accepts: bool
) -> None:
    partition = PartitionView(0, BrokerId(1), LeaderEpoch(0), (1, 2, 3), isr, (), 0)
    moving = PartitionReassignment((1, 2, 3), adding, ())
    assert is_under_replicated(partition, moving) is is_under
    view = TopicView("t", UUID(int=1), False, 0, {0: partition})
    assert with_missing_replicas([view]) == [view]
    (row,) = under_replicated_rows([view], {}, {"t": 3}, {TopicPartition("t", 0): moving})
    assert (row["min_in_sync_replicas"], row["accepts_acks_all"]) == (needed, accepts)


def test_a_partition_whose_brokers_are_all_dead(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("t", assignments={0: [3]})
    assert json.loads(in_process("topics", "describe", "t", "--json").stdout)[0]["partitions_detail"][0]["leader"] == 3
    kafka.kill(3)
    kafka.wait_for(lambda: kafka.admin.list_topics()[0].partitions[0].leader < 0, what="the loss of the leader")
    text = in_process("cluster").stdout
    assert "1 without a leader" in text
    (partition,) = json.loads(in_process("topics", "describe", "t", "--json").stdout)[0]["partitions_detail"]
    assert (partition["leader"], partition["offline_replicas"]) == (-1, [3])
    assert [*partition["isr"], *partition["elr"]] == [3], "it may lead again"
    assert in_process("topics", "describe", "t").stdout.splitlines()[2].split()[1] == "none"
