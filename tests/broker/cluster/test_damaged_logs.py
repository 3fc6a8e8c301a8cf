"""A log that cannot be read any more: its broker names it once, another replica leads, and the log is copied anew."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Consumer, Producer
from barnabas.broker.cluster import storage_failures
from barnabas.broker.cluster.storage_failures import StorageFailures
from barnabas.errors import CorruptMessage
from barnabas.log.unified_log import UnifiedLog
from barnabas.testing import Cluster
from barnabas.types import TopicPartition
from broker.wire import on_loop, server_of

RECORDS = [b"record %d" % number for number in range(40)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"min.insync.replicas": 2}) as cluster:
        cluster.create_topic("t", replication_factor=3, configs={"segment.bytes": "1000", "index.interval.bytes": "0"})
        cluster.wait_in_sync()
        with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            for value in RECORDS:
                producer.send("t", value).result(30)
        yield cluster


def log_of(cluster: Cluster, node_id: int) -> UnifiedLog:
    return server_of(cluster.broker(node_id)).log_manager.logs[TopicPartition("t", 0)]


def values(cluster: Cluster) -> list[bytes | None]:
    """Reads all records as an application does that begins anew when a batch has a wrong checksum."""
    deadline = time.monotonic() + 60
    while True:
        with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            reader = iter(consumer)
            try:
                return [next(reader).value for _ in RECORDS]
            except CorruptMessage:
                assert time.monotonic() < deadline


def overwrite(path: str, position: int, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, data, position)
    os.close(fd)


def wrong_checksum(log: UnifiedLog) -> None:
    segment = log.segments[1]
    overwrite(segment.path(".log"), segment.size - 3, b"\xff")


def no_header(log: UnifiedLog) -> None:
    overwrite(log.segments[1].path(".log"), 0, b"\xff" * 40)


def cut_short(log: UnifiedLog) -> None:
    segment = log.segments[1]
    os.truncate(segment.path(".log"), segment.size // 2)


def gone(log: UnifiedLog) -> None:
    os.unlink(log.segments[1].path(".log"))
    log.segments[1].release()


@pytest.mark.parametrize("damage", [wrong_checksum, no_header, cut_short, gone])
def test_another_leads_and_the_damaged_log_is_copied_anew_and_kept(
    cluster: Cluster, damage: Callable[[UnifiedLog], None], caplog: pytest.LogCaptureFixture
) -> None:
    leader = cluster.leader("t")
    damaged = log_of(cluster, leader)
    damage(damaged)
    with caplog.at_level(logging.WARNING):
        assert values(cluster) == RECORDS
    assert cluster.leader("t") != leader
    said = [record.getMessage() for record in caplog.records if " is damaged: " in record.getMessage()]
    assert len(said) == 1
    assert damaged.segments[1].path(".log") in said[0] or "t-0 is damaged" in said[0]
    cluster.wait_for(lambda: leader in cluster.in_sync_replicas("t"), what="the copy is in sync")
    copied = log_of(cluster, leader)
    assert copied is not damaged
    assert copied.log_end_offset == len(RECORDS)
    assert Path(copied.directory).name == "t-0"
    server_of(cluster.broker(leader)).log_manager.remove_deleted(1 << 62)
    (kept,) = Path(copied.directory).parent.glob("t-0.*-stray")
    assert kept.samefile(damaged.directory)
    assert str(kept) in caplog.text


def leader_is_damaged(cluster: Cluster, damaged: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for log in (log_of(cluster, node_id) for node_id in (1, 2, 3)):
        if log is not damaged:
            log.damage.found = "another part cannot be read"


def no_room(cluster: Cluster, damaged: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.cluster.storage_failures.free_bytes", lambda path: damaged.size_bytes - 1)


def an_earlier_copy(cluster: Cluster, damaged: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"{damaged.directory}.{'0' * 32}-stray").mkdir()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (leader_is_damaged, "is damaged as well: another part cannot be read"),
        (no_room, "bytes that are needed"),
        (an_earlier_copy, "is of an earlier copy"),
    ],
)
def test_a_damaged_log_is_put_aside_only_if_the_copy_can_be_finished(
    cluster: Cluster,
    reason: Callable[[Cluster, UnifiedLog, pytest.MonkeyPatch], None],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader = cluster.leader("t")
    damaged = log_of(cluster, leader)
    reason(cluster, damaged, monkeypatch)
    on_loop(cluster.broker(leader), lambda: damaged.damage.note("a part cannot be read"))
    cluster.wait_for(lambda: "t-0 is not copied: " in caplog.text, what="the reason is told")
    assert said in caplog.text
    assert cluster.leader("t") != leader
    assert log_of(cluster, leader) is damaged
    assert Path(damaged.directory).name == "t-0"


@pytest.mark.source
def test_a_copy_that_fails_is_begun_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage_failures, "ASK_AGAIN_S", 0)
    leader = cluster.leader("t")
    damaged = log_of(cluster, leader)
    home, append = Path(damaged.directory).parent, UnifiedLog.append_as_follower
    failed: list[UnifiedLog] = []

    def fail_once(log: UnifiedLog, *args: Any, **kwargs: Any) -> Any:
        if not failed and log is not damaged and log.directory == f"{home}/t-0":
            failed.append(log)
            raise log.take_offline("Input/output error")
        return append(log, *args, **kwargs)

    monkeypatch.setattr(UnifiedLog, "append_as_follower", fail_once)
    on_loop(cluster.broker(leader), lambda: damaged.damage.note("a part cannot be read"))
    cluster.wait_for(lambda: bool(failed), what="the first copy fails")
    logs = server_of(cluster.broker(leader)).log_manager
    cluster.wait_for(lambda: logs.get(damaged.topic_partition) is not failed[0], what="another copy")
    cluster.wait_for(lambda: leader in cluster.in_sync_replicas("t"), what="the other copy is in sync")
    assert "the copy has failed: Input/output error" in caplog.text
    assert list(home.glob("t-0*-stray")) == [Path(damaged.directory)]
    assert values(cluster) == RECORDS


def test_logs_are_copied_one_after_the_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("u", replication_factor=3)
    cluster.wait_in_sync()
    monkeypatch.setattr(storage_failures, "ASK_AGAIN_S", 0)
    monkeypatch.setattr(StorageFailures, "_note_end_of_copy", lambda _: None)
    leader = cluster.leader("t")
    first, second = (
        server_of(cluster.broker(leader)).log_manager.logs[TopicPartition(topic, 0)] for topic in ("t", "u")
    )
    on_loop(cluster.broker(leader), lambda: first.damage.note("a part cannot be read"))
    cluster.wait_for(lambda: "-stray" in Path(first.directory).name, what="the first one is put aside")
    on_loop(cluster.broker(leader), lambda: second.damage.note("a part cannot be read"))
    cluster.wait_for(lambda: "u-0 is not copied: t-0 is copied first" in caplog.text, what="the second one waits")
    assert Path(second.directory).name == "u-0"


def test_a_coordinator_whose_log_has_a_bad_batch_is_replaced(cluster: Cluster) -> None:
    with Consumer(
        "t", group_id="g", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        assert next(iter(consumer)).value == RECORDS[0]
        consumer.commit()
    committed = cluster.committed("g")
    offsets = "__consumer_offsets"
    logs = server_of(cluster.broker(1)).log_manager.logs
    number = next(number for (topic, number), log in logs.items() if topic == offsets and log.size_bytes)
    successor = next(node_id for node_id in (1, 2, 3) if node_id != cluster.leader(offsets, number))
    segment = server_of(cluster.broker(successor)).log_manager.logs[TopicPartition(offsets, number)].active_segment
    overwrite(segment.path(".log"), segment.size - 3, b"\xff")
    cluster.move_leader(offsets, number, to=successor)
    cluster.wait_for(lambda: cluster.leader(offsets, number) != successor, what="another coordinator")
    assert cluster.committed("g") == committed
    cluster.wait_for(lambda: successor in cluster.in_sync_replicas(offsets, number), what="the copy is in sync")


def test_the_only_replica_in_sync_stays_the_leader_and_serves_what_it_can(cluster: Cluster) -> None:
    leader = cluster.leader("t")
    for node_id in {1, 2, 3} - {leader}:
        cluster.stop(node_id)
    no_header(log_of(cluster, leader))
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        reader = iter(consumer)
        assert next(reader).value == RECORDS[0]
        cluster.wait_for(lambda: log_of(cluster, leader).lacks, what="the damage is found")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks=1) as producer:
        producer.send("t", b"more").result(30)
    assert cluster.leader("t") == leader
    cluster.start(({1, 2, 3} - {leader}).pop())
    cluster.wait_for(lambda: cluster.leader("t") != leader, what="one that is in sync leads")


def test_a_log_that_is_known_to_lack_records_leads_for_a_moment_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a start that has found a segment missing, before anybody looks."""
    leader = cluster.leader("t")
    partition = server_of(cluster.broker(leader)).image.partition("t", 0)
    assert partition is not None
    next_one, last = (node_id for node_id in partition.replicas if node_id != leader)
    epoch = partition.leader_epoch
    for node_id in (next_one, last):  # the periodic look is too late
        monkeypatch.setattr(server_of(cluster.broker(node_id)).replica_manager, "all", list)
    log_of(cluster, next_one).damage.found = "a segment is missing"
    cluster.stop(leader)
    cluster.wait_for(lambda: cluster.leader("t") == last, what="the one with all records leads")
    led = server_of(cluster.broker(last)).image.partition("t", 0)
    assert led is not None
    assert led.leader_epoch >= epoch + 2, "the other one was elected before"
    assert next_one not in led.isr
