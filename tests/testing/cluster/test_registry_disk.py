"""The disk under the registry, which brokers share, is full, read-only or fails: what goes on, and what waits."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.client.admin.log_dirs import FULL_BYTES
from barnabas.errors import KafkaStorageError, RequestTimedOut
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.registry.registry import RegistryUnavailable
from barnabas.registry.sqlite_file import SqliteFile
from barnabas.testing import Cluster
from broker.sent_requests import batch, produce
from broker.served import small_file_system
from broker.wire import Wire
from small_disks import fill, make_room

RESERVE = 2 << 20


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk on which a cluster has all that it has."""
    disk = tmp_path / "disk"
    with small_file_system(disk, "64m"):
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        yield disk


@pytest.fixture
def cluster(disk: Path) -> Iterator[Cluster]:
    with Cluster(processes=True, settings={"log.dir.reserve.bytes": RESERVE}) as cluster:
        yield cluster


def test_on_a_full_disk_leaders_are_elected_and_topics_deleted(cluster: Cluster, disk: Path) -> None:
    cluster.create_topic("old")
    cluster.create_topic("t")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"one").result(timeout=60)
    for _ in cluster.node_ids:  # each death and each return is some writes
        fill(disk)
        leader = cluster.leader("t")
        cluster.kill(leader)
        assert cluster.leader("t") != leader
        fill(disk)
        cluster.start(leader)
        cluster.wait_in_sync()
    fill(disk)
    with pytest.raises(RequestTimedOut):
        cluster.create_topic("new")
    with Wire(cluster.broker(1)) as wire:
        told = wire.ask(DescribeClusterRequest(leader_changes_max=1), 2)
    assert told.registry_usable_bytes < FULL_BYTES < told.registry_total_bytes, "the doctor says so"
    cluster.admin.delete_topics("old")
    make_room(disk)
    cluster.create_topic("new")
    assert [record.value for record in cluster.records("t")] == [b"one"]


def test_records_of_no_broker_use_up_what_is_set_aside(cluster: Cluster, disk: Path) -> None:
    """Producers of all brokers wait for every free byte, while the controller writes again and again."""
    cluster.create_topic("t", assignments={index: [node_id] for index, node_id in enumerate(cluster.node_ids)})
    full = threading.Barrier(len(cluster.node_ids) + 1, timeout=60)
    ended = threading.Event()

    def send(wire: Wire, index: int) -> None:
        request = produce(cluster.broker(index + 1), {index: batch(bytes(3000))})
        answers = (wire.ask(request, 12).responses[0].partition_responses[0].error_code for _ in iter(int, 1))
        next(code for code in answers if code == KafkaStorageError.code)
        full.wait()
        next(code for code in answers if ended.is_set())

    fill(disk)
    with ExitStack() as stack:
        stack.callback(ended.set)
        for index, node_id in enumerate(cluster.node_ids):
            wire = stack.enter_context(Wire(cluster.broker(node_id)))
            sender = threading.Thread(target=send, args=(wire, index))
            sender.start()
            stack.callback(sender.join)
            stack.callback(ended.set)
        full.wait()
        for size in range(40):
            cluster.admin.alter_configs({("topic", "t"): {"retention.bytes": str(10**9 + size)}})
    (reserve,) = disk.glob("*/barnabas-reserve")
    assert reserve.stat().st_size > RESERVE // 2
    cluster.admin.delete_topics("t")


def test_while_it_fails_records_are_served_and_the_rest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def fails(file: SqliteFile, **_: bool) -> Iterator[None]:
        raise RegistryUnavailable("attempt to write a readonly database")
        yield

    with Cluster() as cluster, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        controller = cluster.controller
        leader, other = (node_id for node_id in cluster.node_ids if node_id != controller)
        cluster.create_topic("t", assignments={0: [leader, other, controller]})
        producer.send("t", b"zero").result(timeout=60)
        with monkeypatch.context() as patch:
            patch.setattr(SqliteFile, "transaction", fails)
            producer.send("t", b"one").result(timeout=60)
            with pytest.raises(RequestTimedOut):
                cluster.create_topic("u")
            cluster.kill(leader)
            with pytest.raises(RequestTimedOut):
                cluster.create_topic("u")
            assert cluster.broker(other).image.topics["t"].partitions[0].leader == leader, "nobody is elected"
        assert cluster.leader("t") != leader
        cluster.create_topic("u")
        producer.send("t", b"two").result(timeout=60)
        assert [record.value for record in cluster.records("t")] == [b"zero", b"one", b"two"]
