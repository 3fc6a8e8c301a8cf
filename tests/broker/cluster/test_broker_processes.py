"""Brokers as processes that are killed, stopped and started again."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.cluster.clusters import SOON_S, ProcessCluster, create_request, wait_for
from broker.sent_requests import append, batch
from broker.wire import Wire
from stopped_processes import stop_process
from stopwatch import Stopwatch

Make = Callable[..., ProcessCluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ProcessCluster] = []

    def make(*node_ids: int, **settings: object) -> ProcessCluster:
        made.append(ProcessCluster(tmp_path, node_ids, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def append_alone(wire: Wire, topic: str) -> int:
    """Produces a record that the leader alone acknowledges; the error code."""
    data = [PartitionProduceData(index=0, records=batch(b"x", key=None))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return int(wire.ask(request, 9).responses[0].partition_responses[0].error_code)


def test_the_death_of_the_controller_is_noticed_at_once(make: Make) -> None:
    """By its pidfd, not by the end of a session: that is an hour away."""
    cluster = make(1, 2, 3, broker_session_timeout_ms=3_600_000, broker_heartbeat_interval_ms=1_800_000)
    cluster.create("t", (1, 2, 3), by=3)
    wait_for(lambda: cluster.partition("t", seen_by=2) == (1, 0, {1, 2, 3}))
    with cluster.wire(2) as wire:
        cluster.kill(1)
        wait_for(lambda: cluster.controller(2) in (2, 3))
        wait_for(lambda: cluster.partition("t", seen_by=2) == (2, 1, {2, 3}))
        assert append(wire, "t") == 0
    assert cluster.controller(3) == cluster.controller(2)
    assert cluster.live(3) == {2, 3}
    cluster.create("u", (2, 3), by=3)
    cluster.start(1)
    wait_for(lambda: cluster.partition("t", seen_by=1) == (2, 1, {1, 2, 3}), "the copy")


def test_a_stopped_broker_is_fenced_and_comes_back(make: Make) -> None:
    cluster = make(1, 2, broker_session_timeout_ms=1000, broker_heartbeat_interval_ms=200)
    cluster.create("t", (2, 1), by=1)
    wait_for(lambda: cluster.partition("t", seen_by=1) == (2, 0, {1, 2}))
    cluster.signal(2, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for(lambda: cluster.live(1) == {1}, "the end of its session")
    assert time.monotonic() - stopped > 0.3, "not sooner than the session allows, from the last heartbeat on"
    wait_for(lambda: cluster.partition("t", seen_by=1) == (1, 1, {1}))
    with cluster.wire(1) as wire:
        assert append(wire, "t") == 0
    cluster.signal(2, signal.SIGCONT)
    wait_for(lambda: cluster.live(1) == {1, 2}, "the broker that goes on")
    wait_for(lambda: cluster.partition("t", seen_by=2) == (1, 1, {1, 2}), "the copy")
    assert "nothing was heard of it for 1000 ms" in cluster.log(1)


def test_a_stopped_controller_keeps_its_role(make: Make) -> None:
    cluster = make(1, 2, broker_session_timeout_ms=3000, broker_heartbeat_interval_ms=300)
    cluster.create("t", (2, 1), by=2)
    wait_for(lambda: cluster.partition("t", seen_by=2) == (2, 0, {1, 2}))
    cluster.signal(1, signal.SIGSTOP)
    with cluster.wire(2) as wire:
        until = time.monotonic() + 4  # longer than a session
        while time.monotonic() < until:
            assert append_alone(wire, "t") == 0, "the data goes on"
        assert cluster.partition("t", seen_by=2)[:2] == (2, 0)
    cluster.signal(1, signal.SIGCONT)
    wait_for(lambda: cluster.controller(2) == 1)
    cluster.create("u", (2, 1), by=2)
    wait_for(lambda: cluster.partition("u", seen_by=1)[2] == {1, 2})


def test_a_broker_that_restarts_before_its_death_is_noticed_leads_in_a_new_epoch(make: Make) -> None:
    cluster = make(1, 2)
    cluster.create("t", (2,), by=1)
    with cluster.wire(2) as wire:
        assert append(wire, "t") == 0
    cluster.signal(1, signal.SIGSTOP)  # the controller sees nothing
    cluster.kill(2)
    log = cluster.log(2)
    ready = cluster.begin(2)
    wait_for(lambda: _accepts(cluster, 2), "its listener")
    with cluster.wire(2, 0.5) as wire, pytest.raises(TimeoutError):
        append_alone(wire, "t")  # it has to be taken in first
    assert not ready.exists()
    cluster.signal(1, signal.SIGCONT)
    wait_for(ready.exists, "the broker that was taken in")
    with cluster.wire(2) as wire:
        assert append(wire, "t") == 0
    assert cluster.partition("t", seen_by=2)[:2] == (2, 2)
    assert "Traceback" not in cluster.log(2)[len(log) :]


def _accepts(cluster: ProcessCluster, node_id: int) -> bool:
    try:
        cluster.wire(node_id).close()
    except OSError:
        return False
    return True


LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("node_ids", [(1,), (1, 2)])
def test_a_frozen_process_that_holds_the_registry_freezes_no_data(
    make: Make, node_ids: tuple[int, ...], stopwatch: Stopwatch
) -> None:
    cluster = make(*node_ids, broker_heartbeat_interval_ms=100)
    for node_id in node_ids:
        cluster.create(f"t{node_id}", (node_id,), by=1)
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(cluster.directory / "registry.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline() == b"locked\n"
        stop_process(locker.pid)
        try:
            for node_id in node_ids:
                with cluster.wire(1) as waiting, cluster.wire(node_id) as wire:
                    waiting.send(create_request(f"late{node_id}", (node_id,)), 7)
                    until = time.monotonic() + 1.0
                    slowest = 0.0
                    while time.monotonic() < until:
                        began = stopwatch()
                        assert append(wire, f"t{node_id}") == 0
                        slowest = max(slowest, stopwatch() - began)
                    assert slowest < 3, "SQLite waits five seconds for the lock"
                    with pytest.raises(sqlite3.OperationalError, match="locked"):
                        _write_at_once(cluster.directory / "registry.db")
        finally:
            locker.kill()
    cluster.create("after", (1,), by=node_ids[-1])


def _write_at_once(registry: Path) -> None:
    db = sqlite3.connect(registry, isolation_level=None, timeout=0)
    try:
        db.execute("BEGIN IMMEDIATE")
    finally:
        db.close()


def test_a_shutdown_in_order_interrupts_no_producer(make: Make) -> None:
    cluster = make(1, 2)
    cluster.create("t", (1, 2), by=2)
    wait_for(lambda: cluster.partition("t", seen_by=2)[2] == {1, 2})
    cluster.stop(1)
    assert cluster.partition("t", seen_by=2) == (2, 1, {2}), "moved before the end"
    with cluster.wire(2) as wire:
        assert append(wire, "t") == 0
    wait_for(lambda: cluster.controller(2) == 2)
    cluster.stop(2)
    cluster.start(1)
    cluster.start(2)
    wait_for(lambda: cluster.partition("t", seen_by=1)[::2] == (2, {1, 2}), "its last leader leads again")
    assert cluster.live(1) == {1, 2}


def test_a_broker_that_lost_its_logs_does_not_lead_before_one_that_has_them(make: Make) -> None:
    cluster = make(1, 2)
    cluster.create("t", (1, 2), by=1)
    wait_for(lambda: cluster.partition("t", seen_by=1)[2] == {1, 2})
    with cluster.wire(1) as wire:
        assert append(wire, "t") == 0
    cluster.signal(2, signal.SIGSTOP)  # so that both die as members of the ISR
    cluster.kill(1)
    cluster.kill(2)
    shutil.rmtree(cluster.directory / "1")
    cluster.begin(1)
    assert cluster.processes[1].wait(SOON_S) == 75, "nobody alive has its records"
    cluster.start(2)
    cluster.start(1)
    wait_for(lambda: cluster.partition("t", seen_by=2)[0] == 2, "the broker with the records")
    offsets = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    wait_for(lambda: cluster.ask(2, offsets, 5).topics[0].partitions[0].offset == 1, "the record")
    wait_for(lambda: cluster.partition("t", seen_by=2)[::2] == (2, {1, 2}), "the copy")
