"""The promises of docs/cluster.md that no other test shows."""

import shutil
import time

import pytest

import barnabas
from barnabas.errors import BarnabasError, ItemsFailed, PreferredLeaderNotAvailable, UnknownTopicOrPartition
from barnabas.testing import Cluster


def write(cluster: Cluster, *values: bytes, **settings: object) -> None:
    quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50, **settings}
    with barnabas.Producer(quick, bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value).result(timeout=60)


def values(cluster: Cluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def told_leader(cluster: Cluster) -> int:
    """Returns the leader of topic t, the only one, of which clients are told: -1 if there is none."""
    (topic,) = cluster.admin.list_topics()
    return topic.partitions[0].leader


def test_all_brokers_die_at_once_and_nothing_is_lost(cluster: Cluster) -> None:
    cluster.create_topic("t")
    write(cluster, b"one", b"two")
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
    logs = cluster.logs("t")
    assert sorted(logs) == [1, 2, 3]
    assert len({tuple(log) for log in logs.values()}) == 1, "the disks tell it, too"
    with pytest.raises(UnknownTopicOrPartition, match="none has a log of t-1"):
        cluster.logs("t", 1)
    for node_id in reversed(cluster.node_ids):
        cluster.start(node_id)
    cluster.wait_in_sync()
    assert values(cluster) == [b"one", b"two"]


def test_a_broker_that_lost_its_directory_copies_everything_again(cluster: Cluster) -> None:
    cluster.create_topic("t", assignments={0: [2, 3, 1]})
    write(cluster, b"one")
    directory = cluster.broker(2).data_dir
    cluster.kill(2)
    cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {1, 3}, what="the ISR without the broker")
    shutil.rmtree(directory)
    directory.mkdir()
    cluster.start(2)
    cluster.wait_in_sync()
    assert values(cluster) == [b"one"]
    assert cluster.logs("t")[2] == cluster.logs("t")[3]


def test_acks_all_waits_while_the_controller_hangs() -> None:
    """The registry in a file: only the controller takes replicas out of an ISR, also the one on its own broker."""
    with Cluster(processes=True, settings={"replica.lag.time.max.ms": 1000}) as cluster:
        controller = cluster.controller
        leader, other = (node_id for node_id in cluster.node_ids if node_id != controller)
        cluster.create_topic("t", assignments={0: [leader, other, controller]})
        address = cluster.broker(leader).bootstrap_servers
        with (
            barnabas.Producer(bootstrap_servers=address) as patient,
            barnabas.Producer(bootstrap_servers=address, acks=1, enable_idempotence=False) as hasty,
        ):
            patient.send("t", b"before").result(timeout=60)
            cluster.wait_in_sync()
            cluster.pause(controller)
            waiting = patient.send("t", b"for the broker that hangs")
            until = time.monotonic() + 4  # longer than a session, and several times what a replica may lag
            while time.monotonic() < until:
                hasty.send("t", b"on the leader").result(timeout=60)
            assert not waiting.done()
            assert cluster.in_sync_replicas("t") == set(cluster.node_ids)
            cluster.resume(controller)
            waiting.result(timeout=60)


def test_a_controller_that_is_cut_off_is_replaced() -> None:
    with Cluster() as cluster:
        controller = cluster.controller
        others = [node_id for node_id in cluster.node_ids if node_id != controller]
        cluster.create_topic("t", assignments={0: [controller, *others]})
        write(cluster, b"before")
        cluster.partition({controller}, others)
        write(cluster, b"by the others")
        assert cluster.controller in others
        assert cluster.leader("t") in others
        cluster.heal()
        cluster.wait_in_sync()
        assert values(cluster) == [b"before", b"by the others"]


def test_without_an_eligible_replica_there_is_no_leader_until_one_is_back(cluster: Cluster) -> None:
    lagging, alone = sorted(cluster.node_ids, key=lambda node_id: node_id == cluster.controller)[:2]
    cluster.create_topic("t", assignments={0: [alone, lagging]}, configs={"min.insync.replicas": "1"})
    cluster.kill(lagging)
    cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {alone}, what="the ISR of one")
    write(cluster, b"only on one broker")
    cluster.kill(alone)
    cluster.start(lagging)
    cluster.wait_for(lambda: told_leader(cluster) == -1, what="the loss of the leader")
    with pytest.raises(ItemsFailed) as refused:
        cluster.admin.elect_leaders([("t", 0)])
    assert refused.value.only(PreferredLeaderNotAvailable)
    with pytest.raises(BarnabasError):
        write(cluster, b"refused", delivery_timeout_ms=700, request_timeout_ms=500, linger_ms=0)
    cluster.start(alone)
    cluster.wait_in_sync()
    assert values(cluster) == [b"only on one broker"]


def test_an_unclean_election_gives_records_up(cluster: Cluster) -> None:
    lagging, alone = sorted(cluster.node_ids, key=lambda node_id: node_id == cluster.controller)[:2]
    cluster.create_topic("t", assignments={0: [alone, lagging]}, configs={"min.insync.replicas": "1"})
    write(cluster, b"on both")
    cluster.kill(lagging)
    cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {alone}, what="the ISR of one")
    write(cluster, b"only on one broker")
    cluster.kill(alone)
    cluster.start(lagging)
    cluster.wait_for(lambda: told_leader(cluster) == -1, what="the loss of the leader")
    cluster.admin.elect_leaders([("t", 0)], unclean=True)
    assert values(cluster) == [b"on both"]
    changes = cluster.admin.leader_changes()
    assert changes is not None
    assert changes[-1].reason == "elected by an administrator; unclean, records may be lost"
    cluster.start(alone)
    cluster.wait_in_sync()
    assert values(cluster) == [b"on both"], "the former leader follows the new one"
