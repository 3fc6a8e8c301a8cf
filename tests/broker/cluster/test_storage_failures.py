"""A broker whose disk refuses records hands its partitions over: producers go on within moments."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Producer
from barnabas.broker.peers.controller_channel import ControllerChannel
from barnabas.errors import NotController
from barnabas.protocol.peer_messages.give_up_replicas import GiveUpReplicasRequest
from barnabas.testing import Cluster
from broker.wire import server_of


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", replication_factor=3)
        cluster.wait_in_sync()
        yield cluster


@pytest.mark.parametrize("fault", ["full", "fail"])
def test_a_leader_that_cannot_write_is_followed_by_another(cluster: Cluster, fault: str) -> None:
    leader = cluster.leader("t")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"before").result(30)
        getattr(cluster.disk(leader), fault)()
        producer.send("t", b"while").result(30)
        assert cluster.leader("t") != leader
        assert leader not in cluster.in_sync_replicas("t")
        producer.send("t", b"after").result(30)
    assert [record.value for record in cluster.broker(cluster.leader("t")).records("t")] == [
        b"before",
        b"while",
        b"after",
    ]


def test_a_disk_that_failed_while_nobody_wrote_is_told_until_the_controller_hears(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, left = ControllerChannel.send, [NotController("the controller is about to change")]

    async def send_or_fail(channel: ControllerChannel, request: object, **options: Any) -> Any:
        if isinstance(request, GiveUpReplicasRequest) and left:
            raise left.pop()
        return await send(channel, request, **options)

    monkeypatch.setattr(ControllerChannel, "send", send_or_fail)
    leader = cluster.leader("t")
    (directory,) = server_of(cluster.broker(leader)).log_manager.directories
    monkeypatch.setattr(directory, "failure", lambda: OSError(errno.EIO, "Input/output error"))
    cluster.wait_for(lambda: cluster.leader("t") != leader, what="another leader")
    assert not left


def test_a_broker_that_cannot_tell_of_its_failed_directories_ends_when_all_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as it serves something it goes on: nobody is elected in its place where nobody can be told."""
    send, attempts = ControllerChannel.send, [0]

    async def send_or_fail(channel: ControllerChannel, request: object, **options: Any) -> Any:
        if isinstance(request, GiveUpReplicasRequest):
            attempts[0] += 1
            raise NotController("it is nobody")
        return await send(channel, request, **options)

    monkeypatch.setattr(ControllerChannel, "send", send_or_fail)
    with Cluster(brokers=2, log_dirs=2, settings={"log.dir.failure.timeout.ms": 1}) as cluster:
        cluster.create_topic("t", partitions=8, replication_factor=2)
        cluster.wait_in_sync()
        leader = server_of(cluster.broker(cluster.leader("t")))
        # In sync are new partitions from the first, also where their logs are still to be made.
        cluster.wait_for(lambda: len(leader.log_manager.logs) == 8, what="the logs of all partitions")
        for directory in leader.log_manager.directories:
            assert any(Path(directory.path).glob("t-*"))
            assert not leader.ended.done()
            monkeypatch.setattr(directory, "failure", lambda: OSError(errno.EIO, "Input/output error"))
            attempts[0] = 0
            cluster.wait_for(lambda: attempts[0] >= 3 or leader.ended.done(), what="attempts to tell the controller")
        cluster.wait_for(leader.ended.done, what="the end of the broker")
        follower = server_of(cluster.broker(({1, 2} - {leader.node_id}).pop()))
        assert not follower.ended.done()


def test_a_follower_that_cannot_write_holds_up_nobody(cluster: Cluster) -> None:
    follower = next(node_id for node_id in (1, 2, 3) if node_id != cluster.leader("t"))
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.disk(follower).full()
        producer.send("t", b"while").result(10)  # replica.lag.time.max.ms is 30 seconds
        assert follower not in cluster.in_sync_replicas("t")
        cluster.disk(follower).heal()
    cluster.wait_in_sync()


def test_a_full_disk_that_has_room_again_is_in_sync_again(cluster: Cluster) -> None:
    leader = cluster.leader("t")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer, cluster.disk(leader).full():
        producer.send("t", b"while").result(30)
    cluster.wait_in_sync()
    assert cluster.in_sync_replicas("t") == {1, 2, 3}


def test_the_last_replica_keeps_its_role(cluster: Cluster) -> None:
    leader = cluster.leader("t")
    for node_id in {1, 2, 3} - {leader}:
        cluster.kill(node_id)
    cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {leader}, what="the ISR has one member")
    with (
        Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            acks=1,
            linger_ms=0,
            request_timeout_ms=8000,
            delivery_timeout_ms=10_000,
        ) as producer,
        cluster.disk(leader).full(),
    ):
        handle = producer.send("t", b"x")
        with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
            handle.result(60)
    assert cluster.leader("t") == leader
