"""Brokers in processes of their own: signals, errors, and that nothing outlives the test."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition, UsageError
from barnabas.testing import Broker, BrokerDied, Cluster
from barnabas.testing.cluster.broker_process import BrokerProcess

PATIENCE_S = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(1, processes=True) as cluster:
        yield cluster


@pytest.fixture
def broker(shared: Cluster) -> BrokerProcess:
    shared.reset()
    broker = shared.broker(1)
    assert isinstance(broker, BrokerProcess)
    return broker


def runs(pid: int) -> bool:
    """Returns whether a process is there that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone_soon(pids: list[int]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not any(map(runs, pids))


def test_each_start_is_another_process(broker: BrokerProcess) -> None:
    first = broker.pid
    assert first != os.getpid()
    broker.kill()
    assert not runs(first)
    with pytest.raises(UsageError, match="does not run"):
        _ = broker.pid
    broker.start()
    second = broker.pid
    assert runs(second)
    with pytest.raises(UsageError, match="runs already"):
        broker.start()
    broker.stop()
    assert not runs(second)
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_pause_stops_the_process(broker: BrokerProcess) -> None:
    broker.pause()
    threads = [*Path(f"/proc/{broker.pid}/task").glob("*/stat")]
    assert len(threads) > 1, "its event loop has a thread of its own"
    assert {stat.read_text().rpartition(")")[2].split()[0] for stat in threads} == {"T"}
    with pytest.raises(UsageError, match="paused"):
        broker.topics()
    broker.resume()
    assert broker.topics() == []


def test_its_methods_and_their_errors_are_those_of_every_broker(broker: BrokerProcess) -> None:
    broker.create_topic("t", partitions=2, configs={"retention.ms": "1000000"})
    broker.produce("t", "x", key="k", partition=1, headers={"h": "1"})
    assert [(record.value, record.partition) for record in broker.records("t")] == [(b"x", 1)]
    assert broker.end_offsets("t") == [0, 1]
    assert broker.committed("nobody") == {}
    with pytest.raises(UnknownTopicOrPartition, match="topic u does not exist") as failure:
        broker.records("u")
    assert "In the process of the broker" in "".join(failure.value.__notes__)
    with pytest.raises(UsageError, match="own process"):
        broker.faults.error("PRODUCE", NotLeaderOrFollower)


def test_what_cannot_be_told_is_said_so(broker: BrokerProcess) -> None:
    with pytest.raises(barnabas.errors.BarnabasError, match="cannot be told"):
        broker.call(Broker._running)  # with its sockets and threads
    assert broker.topics() == [], "the next question is answered"


def test_faults_of_disk_and_clock_stay_until_they_end(broker: BrokerProcess) -> None:
    broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    broker.clock.skew(7200)
    with broker.disk.full(), pytest.raises(KafkaStorageError):
        broker.produce("t", "refused")
    placed = broker.produce("t", "x")
    assert placed.timestamp / 1000 - time.time() == pytest.approx(7200, abs=60)
    broker.kill()
    broker.disk.full()
    broker.start()
    with pytest.raises(KafkaStorageError):
        broker.produce("t", "refused again")
    broker.disk.heal()
    assert broker.produce("t", "x").timestamp / 1000 - time.time() == pytest.approx(7200, abs=60)
    broker.clock.skew()
    with broker.disk.slow():
        assert broker.produce("t", "x").timestamp / 1000 - time.time() == pytest.approx(3600, abs=60)
    broker.clock.heal()
    assert broker.produce("t", "x").timestamp / 1000 - time.time() == pytest.approx(0, abs=60)
    with pytest.raises(UsageError, match="0 to 3600 seconds"):
        broker.disk.slow(-1)


def test_a_process_that_somebody_else_has_ended_is_reported(broker: BrokerProcess) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    assert gone_soon([broker.pid])
    with pytest.raises(BrokerDied, match="has ended"):
        broker.topics()
    broker.kill()
    broker.start()


def test_an_answer_that_comes_too_late_is_nobody_elses(broker: BrokerProcess) -> None:
    broker.create_topic("t")
    patience, broker.patience = broker.patience, 0.05
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BrokerDied, match="has not answered"):
            broker.end_offsets("t")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
        broker.patience = patience
    assert "t" in broker.topics()


def test_a_broker_that_somebody_else_has_ended_does_not_run() -> None:
    with Cluster(processes=True) as cluster:
        cluster.create_topic("t", assignments={0: [3, 1, 2]})

        def end(node_id: int) -> None:
            broker = cluster.broker(node_id)
            assert isinstance(broker, BrokerProcess)
            os.kill(broker.pid, signal.SIGKILL)
            cluster.wait_for(lambda: not broker.is_running, what="the end of the process")

        end(3)
        assert cluster.leader("t") != 3
        assert cluster.controller in (1, 2)
        assert 3 in cluster.logs("t")
        cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {1, 2}, what="the ISR of two")
        cluster.disk(3).full()
        cluster.disk(3).heal()
        cluster.start(3)
        cluster.wait_in_sync()
        cluster.pause(3)
        end(3)
        end(cluster.controller)
        cluster.reset()
        assert all(cluster.broker(node_id).topics() == [] for node_id in cluster.node_ids)
        end(2)
        cluster.kill(2)
        end(1)


def test_a_start_that_fails_can_be_tried_again() -> None:
    cluster = Cluster(1, processes=True, settings={"num.partition": 4})
    with pytest.raises(UsageError, match=r"num\.partition is not a setting"):
        cluster.start()
    assert not cluster.data_dir.exists()


PROGRAM = """
import sys, time
from barnabas.testing import Cluster
cluster = Cluster(2, processes=True).start()
cluster.pause(1)
print(cluster.data_dir, cluster.broker(1).pid, cluster.broker(2).pid, cluster._launcher._process.pid, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_test_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        directory, *pids = program.stdout.readline().split()
        assert all(runs(int(pid)) for pid in pids)
        program.kill()
    assert gone_soon([int(pid) for pid in pids])
    assert not Path(directory).exists()
