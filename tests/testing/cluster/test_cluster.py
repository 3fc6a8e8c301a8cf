"""The verbs of the test kit's cluster, each by its effect on real clients."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.broker.cluster import metadata_pushes
from barnabas.errors import (
    BarnabasError,
    EligibleLeadersNotAvailable,
    InvalidReplicationFactor,
    NotCoordinator,
    NotLeaderOrFollower,
    OperationTimedOut,
    UnknownTopicOrPartition,
    UsageError,
)
from barnabas.testing import Broker, Cluster
from barnabas.testing.cluster import cluster as cluster_module
from barnabas.types import BrokerId
from stopwatch import Stopwatch

QUICK = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50}


@contextmanager
def producing(cluster: Cluster, **settings: object) -> Iterator[barnabas.Producer]:
    with barnabas.Producer({**QUICK, **settings}, bootstrap_servers=cluster.bootstrap_servers) as producer:
        yield producer


def write(producer: barnabas.Producer, *values: bytes) -> None:
    for value in values:
        producer.send("t", value, partition=0).result(timeout=60)


def read(cluster: Cluster, count: int) -> list[bytes | None]:
    """Returns the first records of partition 0, as a client gets them."""
    with barnabas.Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([("t", 0)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(timeout=1)]
        return found


def others(cluster: Cluster, *node_ids: int) -> list[int]:
    return [node_id for node_id in cluster.node_ids if node_id not in node_ids]


def leads_elsewhere(cluster: Cluster) -> int:
    """Creates topic t with one partition, whose leader is not the controller, and returns the leader."""
    leader, *followers = others(cluster, cluster.controller)
    cluster.create_topic("t", assignments={0: [leader, *followers, cluster.controller]})
    return leader


# --- life -----------------------------------------------------------------------------------------------------------


def test_it_is_whole_when_it_has_started() -> None:
    with Stopwatch() as now:
        began = now()
        with Cluster() as cluster:
            cluster.create_topic("t")
            took = now() - began
            assert all(cluster.broker(node_id).image.is_active(BrokerId(node_id)) for node_id in (1, 2, 3))
            assert cluster.in_sync_replicas("t") == {1, 2, 3}
    assert took < 30, "a second, on a machine that has nothing else to do"


def test_nothing_stays_behind(tmp_path: Path) -> None:
    """In a process of its own: in this one other tests may have brokers with threads of the same names."""
    script = """
import threading
from barnabas.testing import Cluster

with Cluster(2) as cluster:
    assert (cluster.data_dir / "registry.db").exists()
    assert cluster.admin.list_topics() is not None
    cluster.pause(2)
print([thread.name for thread in threading.enumerate()])
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("['MainThread']", "")
    assert not list(tmp_path.iterdir())


def test_nothing_stays_behind_of_what_is_not_closed(tmp_path: Path) -> None:
    script = """
import os
import sys
import warnings
from barnabas.testing import Broker, Cluster

warnings.simplefilter("ignore")  # of the fork beside threads
idle, broker, cluster = Broker(), Broker().start(), Cluster(2).start()
cluster.create_topic("t")
cluster.pause(2)
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
print(all(each.data_dir.exists() for each in (idle, broker, cluster)))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("True", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("processes", [False, True])
def test_it_works_inside_a_running_event_loop(processes: bool) -> None:
    async def run() -> None:
        with Cluster(2, processes=processes) as cluster:
            cluster.create_topic("t", assignments={0: [1, 2]})
            cluster.pause(2)
            cluster.slow(1, 2, 1)
            cluster.cut(1, 2)
            cluster.heal()
            cluster.resume(2)
            cluster.kill(2)
            cluster.start(2)
            cluster.wait_in_sync()
            assert [topic.name for topic in cluster.admin.list_topics()] == ["t"]
            cluster.reset()

    asyncio.run(run())


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cluster_module, "Links", refuse)
    cluster = Cluster()
    with pytest.raises(OSError, match="no network"):
        cluster.start()
    assert not list(tmp_path.iterdir())
    assert not cluster.is_running
    monkeypatch.undo()
    with cluster:
        assert cluster.controller, "it can be tried again"


def test_the_close_of_a_cluster_that_never_ran_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").touch()
    monkeypatch.chdir(tmp_path)
    Cluster().close()
    assert (tmp_path / "kept").exists()


def test_a_cluster_that_does_not_run_says_so(cluster: Cluster) -> None:
    idle = Cluster()
    for call in (
        lambda: idle.kill(1),
        lambda: idle.leader("t"),
        idle.heal,
        idle.reset,
        lambda: idle.controller,
        lambda: idle.bootstrap_servers,
        lambda: idle.admin,
    ):
        with pytest.raises(UsageError, match=r"the cluster does not run: .*start\(\)"):
            call()
    with pytest.raises(UsageError, match="no data before its first start"):
        _ = idle.data_dir
    with pytest.raises(UsageError, match="runs already"):
        cluster.start()
    with pytest.raises(UsageError, match="there are 1 to 3"):
        cluster.broker(4)
    with pytest.raises(UsageError, match="names 1 racks"):
        Cluster(3, racks=["a"])
    with pytest.raises(UsageError, match="1 to 100 brokers, not 0"):
        Cluster(0)
    with pytest.raises(UsageError, match="1 to 100 brokers, not '3'"):
        Cluster("3")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="1 to 100 log directories, not 0"):
        Cluster(log_dirs=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": True}, "1 to 100 brokers, not True"),
        ({"racks": "abc"}, "racks is a list with the rack of each broker, .* not 'abc'"),
        ({"racks": 3}, "racks is a list .* not 3"),
        ({"settings": [1]}, r"settings has values under Kafka's names, .* not \[1\]"),
        ({"patience": "x"}, "patience is a number of seconds from 0 on, not 'x'"),
        ({"patience": -1}, "patience is a number of seconds from 0 on, not -1"),
    ],
)
def test_arguments_of_a_cluster_that_will_not_do_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Cluster(**arguments)


def test_arguments_that_will_not_do_are_refused(cluster: Cluster) -> None:
    create: Any = cluster.create_topic
    two = {0: [1, 2], 1: [2, 1]}
    for wrong, message in (
        ({"configs": {"retention.ms": 5000}}, r"configs\['retention.ms'\]=5000 will not do: .* write '5000'"),
        ({"partitions": "3"}, "partitions='3' will not do"),
        ({"assignments": [[1]]}, r"assignments=\[\[1\]\] will not do"),
        ({"assignments": {0: 1}}, r"assignments\[0\]=1 will not do"),
        (
            {"assignments": two, "partitions": 3},
            "partitions=3 and .* do not match assignments=.*: leave the numbers out",
        ),
        ({"assignments": two, "replication_factor": 3}, "replication_factor=3 do not match assignments="),
    ):
        with pytest.raises(UsageError, match=message):
            create("t", **wrong)
    create("t", 2, assignments=two, replication_factor=2)
    number: Any = "0"
    leader = cluster.broker(cluster.leader("t"))
    for call in (cluster.leader, cluster.in_sync_replicas, cluster.move_leader, cluster.logs, cluster.records):
        with pytest.raises(UsageError, match="partitions have the numbers 0, 1 and so on, not '0'"):
            call("t", number)
    for by_broker in (lambda: leader.produce("t", "x", partition=number), lambda: leader.records("t", number)):
        with pytest.raises(UsageError, match="partitions have the numbers 0, 1 and so on, not '0'"):
            by_broker()
    waits: list[Any] = [cluster.wait_in_sync, *(partial(each.wait_for_group, "g") for each in (leader, cluster))]
    for wait in waits:
        with pytest.raises(UsageError, match="timeout is a number of seconds, not 'x'"):
            wait(timeout="x")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("node.id", "have the ids 1, 2"),
        ("listeners", "takes free ports"),
        ("log.dirs", "log_dirs=2"),
        ("registry.file", "in the directory of the cluster"),
    ],
)
def test_settings_that_the_cluster_chooses_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is not for a test to set: .*{reason}"):
        Cluster(settings={name: "1"})


def test_the_errors_for_a_broker_in_the_wrong_state_name_the_way_out(cluster: Cluster) -> None:
    controller = cluster.controller
    cluster.pause(controller)
    with pytest.raises(UsageError, match=rf"the controller, and paused: call resume\({controller}\)"):
        cluster.create_topic("t")
    cluster.resume(controller)
    with pytest.raises(UsageError, match=r"broker 1 runs already: call stop\(1\)"):
        cluster.start(1)
    cluster.pause(1)
    with pytest.raises(UsageError, match=r"broker 1 runs already: call resume\(1\)"):
        cluster.start(1)
    with pytest.raises(UsageError, match=r"broker 1 is paused: call resume\(1\)"):
        cluster.broker(1).end_offsets("t")
    for node_id in (2, 3):
        cluster.pause(node_id)
    with pytest.raises(UsageError, match=r"all brokers that run are paused, 1, 2, 3: call resume\(1\)"):
        cluster.in_sync_replicas("t")
    for node_id in (2, 3):
        cluster.kill(node_id)
    cluster.kill(1)
    for call in (cluster.kill, cluster.pause, lambda node_id: cluster.broker(node_id).topics()):
        with pytest.raises(UsageError, match=r"broker 1 does not run: start\(1\) starts it"):
            call(1)
    with pytest.raises(UsageError, match=r"no broker of the cluster runs: start\(1\) starts one"):
        cluster.in_sync_replicas("t")


def test_topics_get_the_replicas_of_serve_with_three_brokers(cluster: Cluster) -> None:
    cluster.create_topic("t", 2)
    assert [cluster.in_sync_replicas("t", partition) for partition in (0, 1)] == [{1, 2, 3}] * 2
    config = cluster.broker(1).image.topic_config("t")
    assert not config, "the settings are those of the brokers"
    with pytest.raises(InvalidReplicationFactor):
        cluster.create_topic("u", replication_factor=4)
    with pytest.raises(UnknownTopicOrPartition, match="there is no t-2"):
        cluster.leader("t", 2)


def test_all_brokers_know_a_topic_that_was_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_pushes, "WAIT_MAX_S", 0.0)  # the controller answers whether they know it or not
    with Cluster(settings={"broker.session.timeout.ms": 3_600_000}) as cluster:
        controller = cluster.controller
        slow, paused = others(cluster, controller)
        cluster.slow(controller, slow, 200)
        cluster.create_topic("t")
        assert all("t" in cluster.broker(node_id).image.topics for node_id in cluster.node_ids)
        cluster.pause(paused)
        cluster.cut(controller, slow)
        cluster.patience = 1.0
        cluster.create_topic("u", assignments={0: [controller]})  # nobody waits for those who cannot learn of it
        assert cluster.in_sync_replicas("u") == {controller}


def test_replicas_are_spread_over_racks() -> None:
    with Cluster(4, racks=["a", "a", "b", "b"], settings={"default.replication.factor": 2}) as cluster:
        cluster.create_topic("t", 8)
        for partition in cluster.broker(1).image.topics["t"].partitions:
            assert {node_id > 2 for node_id in partition.replicas} == {False, True}


def test_brokers_are_those_of_the_kit(cluster: Cluster) -> None:
    cluster.create_topic("t")
    leader = cluster.broker(cluster.leader("t"))
    assert isinstance(leader, Broker)
    leader.produce("t", "by the leader")
    assert read(cluster, 1) == [b"by the leader"]
    assert leader.bootstrap_servers in cluster.bootstrap_servers.split(",")


def test_what_a_broker_appends_is_replicated(cluster: Cluster) -> None:
    leader, follower = others(cluster, cluster.controller)
    cluster.create_topic("t", assignments={0: [leader, follower]})
    for number in range(20):
        cluster.broker(leader).produce("t", b"%d" % number)
        assert len(cluster.records("t")) == number + 1
    cluster.pause(cluster.controller)  # so that the follower stays in the ISR
    cluster.pause(follower)
    assert cluster.broker(leader).produce("t", "by the leader alone", acks=1).offset == 20
    assert len(cluster.records("t")) == 20
    broker = cluster.broker(leader)
    patience, broker.patience = broker.patience, 0.5
    try:
        with pytest.raises(
            TimeoutError, match=r"of t-0 have the record at offset 21 within 0\.5 s; acks=1 does not wait"
        ):
            broker.produce("t", "by all")
    finally:
        broker.patience = patience
    for node_id in others(cluster, leader):
        cluster.resume(node_id)
    assert broker.produce("t", "by all").offset == 22
    assert len(cluster.records("t")) == 23
    with pytest.raises(UsageError, match="acks is 'all' or 1, not 0"):
        broker.produce("t", "x", acks=0)  # type: ignore[arg-type]


def test_an_append_whose_leader_changes_is_not_taken_for_replicated(cluster: Cluster) -> None:
    leader, follower = others(cluster, cluster.controller)
    cluster.create_topic("t", assignments={0: [leader, follower]})
    cluster.cut(leader, follower)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(cluster.broker(leader).produce, "t", "x")
        cluster.wait_for(lambda: cluster.logs("t")[leader], what="the record on the leader")
        assert cluster.move_leader("t") == follower
        with pytest.raises(NotLeaderOrFollower):
            waits.result(timeout=60)


# --- brokers that come and go ---------------------------------------------------------------------------------------


def test_a_killed_leader_loses_nothing_acknowledged(cluster: Cluster) -> None:
    cluster.create_topic("t")
    with producing(cluster) as producer:
        write(producer, *(b"%d" % number for number in range(50)))
        killed = cluster.leader("t")
        cluster.kill(killed)
        assert cluster.leader("t") != killed
        write(producer, b"after")
        assert read(cluster, 51) == [*(b"%d" % number for number in range(50)), b"after"]
        cluster.start(killed)
        cluster.wait_in_sync()
        write(producer, b"with all")
    assert cluster.in_sync_replicas("t") == {1, 2, 3}
    cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")


def same_logs(cluster: Cluster) -> bool:
    first, *rest = cluster.logs("t").values()
    return all(log == first for log in rest)


def test_a_kill_writes_nothing_more(cluster: Cluster) -> None:
    cluster.create_topic("t")
    directory = cluster.broker(2).data_dir
    cluster.kill(2)
    assert not (directory / ".kafka_cleanshutdown").exists()
    cluster.start(2)
    assert cluster.broker(cluster.controller).image.is_active(BrokerId(2)), "it can lead at once"
    cluster.stop(2)
    assert (directory / ".kafka_cleanshutdown").exists(), "a stop is one in order"


def test_the_role_of_a_killed_controller_moves(cluster: Cluster) -> None:
    before = cluster.controller
    cluster.kill(before)
    assert cluster.controller != before
    cluster.create_topic("t", replication_factor=2)
    cluster.start(before)
    assert cluster.controller != before, "the role stays where it is"


def test_a_stop_hands_the_leaders_over_first(cluster: Cluster) -> None:
    leader = leads_elsewhere(cluster)
    with producing(cluster) as producer:
        write(producer, b"before")
        cluster.stop(leader)
        assert cluster.leader("t") != leader
        assert leader not in cluster.in_sync_replicas("t")
        write(producer, b"after")


def test_two_of_three_dead_acknowledge_nothing(cluster: Cluster) -> None:
    leader = leads_elsewhere(cluster)
    for node_id in others(cluster, leader):
        cluster.kill(node_id)
    assert cluster.controller == leader
    with producing(cluster) as producer:
        sent = producer.send("t", b"waits")
        cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {leader}, what="the ISR of one")
        with pytest.raises(OperationTimedOut):
            sent.result(timeout=0.5)
        for node_id in others(cluster, leader):
            cluster.start(node_id)
        assert sent.result(timeout=60).offset == 0


def test_a_paused_leader_is_replaced_after_its_session_and_follows_then(cluster: Cluster) -> None:
    leader = leads_elsewhere(cluster)
    with producing(cluster, request_timeout_ms=1000) as producer:
        write(producer, b"before")
        cluster.pause(leader)
        with pytest.raises(UsageError, match="paused"):
            cluster.broker(leader).records("t")
        waits = producer.send("t", b"waits for another leader")
        cluster.wait_for(lambda: cluster.leader("t") != leader, what="another leader")
        waits.result(timeout=60)
        cluster.resume(leader)
        cluster.wait_in_sync()
        cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")
        assert [batch.leader_epoch for batch in cluster.logs("t")[leader]] == [0, 1]


# --- the network between brokers ------------------------------------------------------------------------------------


def test_a_leader_in_the_minority_acknowledges_nothing(cluster: Cluster) -> None:
    leader = leads_elsewhere(cluster)
    majority = others(cluster, leader)
    once = {"retries": 0, "enable_idempotence": False, "request_timeout_ms": 5000}
    with producing(cluster) as producer, producing(cluster, **once) as minority:
        minority.partitions_for("t")  # it knows the leader
        write(producer, b"before", b"whole")
        cluster.partition({leader}, majority)
        assert cluster.leader("t") == leader
        with pytest.raises(BarnabasError):
            minority.send("t", b"reaches the minority alone").result(timeout=60)
        cluster.wait_for(lambda: len(cluster.logs("t")[leader]) == 3, what="the record on the leader alone")
        cluster.wait_for(lambda: cluster.leader("t") in majority, what="a leader in the majority")
        write(producer, b"during")
        cluster.heal()
        cluster.wait_in_sync()
        cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")
        assert read(cluster, 3) == [b"before", b"whole", b"during"]


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    leader = leads_elsewhere(cluster)
    follower = others(cluster, leader, cluster.controller)[0]
    cluster.cut(leader, follower)
    with producing(cluster) as producer:
        write(producer, b"once the follower is out")
        assert follower not in cluster.in_sync_replicas("t")
        assert cluster.logs("t")[follower] == []
        cluster.heal()
        cluster.wait_in_sync()
        cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")


def test_a_slow_link_delays_what_needs_it(cluster: Cluster) -> None:
    cluster.create_topic("t", assignments={0: [1, 2]})
    with producing(cluster) as producer:
        write(producer, b"connects")
        cluster.slow(1, 2, 100)
        began = time.monotonic()
        write(producer, b"slow")
        assert time.monotonic() - began > 0.1
        cluster.slow(1, 2, 0)
        write(producer, b"fast")


def test_links_that_do_not_exist_are_refused(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="no link to itself"):
        cluster.cut(1, 1)
    with pytest.raises(UsageError, match="there is no broker 4"):
        cluster.slow(1, 4, 10)
    with pytest.raises(UsageError, match="in two groups"):
        cluster.partition({1, 2}, {2, 3})
    with pytest.raises(UsageError, match="0 to 3600000 ms, not -1"):
        cluster.slow(1, 2, -1)
    with pytest.raises(UsageError, match="0 to 3600000 ms, not '5'"):
        cluster.slow(1, 2, "5")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"partition\(\{1\}, \{2, 3\}\), not 1"):
        cluster.partition(1, 2)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"partition\(\{1\}, \{2, 3\}\), not set\(\)"):
        cluster.partition({1}, set())
    for groups in ((), ({1},)):
        with pytest.raises(UsageError, match=rf"\(\{{1\}}, \{{2, 3\}}\); with {len(groups)} of them there is no link"):
            cluster.partition(*groups)
    with pytest.raises(UsageError, match=r"there is no broker \{1\}"):
        cluster.cut({1}, {2})  # type: ignore[arg-type]


def test_disks_and_clocks_take_numbers(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="0 to 3600 seconds, not 'x'"):
        cluster.disk(1).slow("x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="seconds, not 'a'"):
        cluster.clock(1).skew("a")  # type: ignore[arg-type]


# --- disks, clocks, leaders -----------------------------------------------------------------------------------------


def test_another_broker_takes_over_from_a_leader_with_a_full_disk(cluster: Cluster) -> None:
    cluster.create_topic("t")
    leader = cluster.leader("t")
    with producing(cluster) as producer:
        write(producer, b"before")
        with cluster.disk(leader).full():
            write(producer, b"during")
            assert cluster.leader("t") != leader
        write(producer, b"after")
        cluster.wait_in_sync()
    cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")
    assert len(cluster.logs("t")[leader]) == 3


def test_slow_disks_delay_what_is_acknowledged(cluster: Cluster) -> None:
    cluster.create_topic("t")
    with producing(cluster) as producer:
        write(producer, b"fast")
        began = time.monotonic()
        with cluster.disk(cluster.leader("t")).slow(0.2):
            write(producer, b"slow")
        assert time.monotonic() - began > 0.2


def test_a_clock_that_is_wrong_stamps_the_records(cluster: Cluster) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    cluster.clock(cluster.leader("t")).skew(-1000)
    with producing(cluster) as producer:
        sent = producer.send("t", b"x").result(timeout=60)
    assert abs(sent.timestamp / 1000 - (time.time() - 1000)) < 60


def test_a_leader_moves(cluster: Cluster) -> None:
    cluster.create_topic("t")
    before = cluster.leader("t")
    with producing(cluster) as producer:
        write(producer, b"before")
        moved = cluster.move_leader("t")
        assert moved != before
        assert cluster.leader("t") == moved
        write(producer, b"after")
        assert cluster.move_leader("t", to=before) == before
        write(producer, b"back")
    assert cluster.move_leader("t", to=before) == before, "it leads already"
    cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")
    assert [batch.leader_epoch for batch in cluster.logs("t")[moved]] == [0, 1, 2]


def test_a_leader_moves_to_a_replica_that_can_lead(cluster: Cluster) -> None:
    first, second = others(cluster, cluster.controller)
    cluster.create_topic("t", assignments={0: [first, second]}, configs={"min.insync.replicas": "1"})
    for to in (4, "2", [2]):
        with pytest.raises(UsageError, match="there is no broker"):
            cluster.move_leader("t", to=to)  # type: ignore[arg-type]
    with pytest.raises(
        EligibleLeadersNotAvailable, match=f"broker {cluster.controller} has no replica of t-0: its lead"
    ):
        cluster.move_leader("t", to=cluster.controller)
    cluster.kill(second)
    wanted: tuple[tuple[int | None, str], ...] = (
        (None, "t-0 has no in-sync follower"),
        (second, f"broker {second} cannot lead t-0"),
    )
    for given, what in wanted:
        with pytest.raises(EligibleLeadersNotAvailable, match=f"{what}: .*; broker {second} does not run") as failure:
            cluster.move_leader("t", to=given)
        assert f"its leader is broker {first}, in sync are {first}" in str(failure.value)
    cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {first}, what="the ISR of one")
    cluster.start(second)
    assert cluster.move_leader("t", to=second) == second, "once it is in sync"
    cluster.create_topic("u", replication_factor=1)
    with pytest.raises(EligibleLeadersNotAvailable, match="u-0 has no in-sync follower: its leader"):
        cluster.move_leader("u")


def test_a_leader_moves_once_the_next_one_is_elected(cluster: Cluster) -> None:
    controller = cluster.controller
    leader, other = others(cluster, controller)
    cluster.create_topic("t", assignments={0: [leader, other, controller]})
    cluster.kill(leader)
    moved = cluster.move_leader("t")
    assert moved == cluster.leader("t")
    assert cluster.move_leader("t") != moved
    cluster.pause(other)
    assert cluster.move_leader("t", to=controller) == controller


def test_logs_are_read_while_brokers_are_dead(cluster: Cluster) -> None:
    cluster.create_topic("t")
    with producing(cluster) as producer:
        write(producer, b"a", b"b")
    cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")
    cluster.kill(cluster.leader("t"))
    logs = cluster.logs("t")
    assert sorted(logs) == [1, 2, 3]
    assert [[batch.last_offset for batch in log] for log in logs.values()] == [[0, 1]] * 3


def test_records_are_those_of_the_leaders(cluster: Cluster) -> None:
    cluster.create_topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    with producing(cluster) as producer:
        for partition in (2, 0, 1):
            producer.send("t", b"in %d" % partition, partition=partition).result(timeout=60)
    assert [record.value for record in cluster.records("t")] == [b"in 0", b"in 1", b"in 2"]
    assert [record.value for record in cluster.records("t", 1)] == [b"in 1"]
    cluster.kill(3)
    cluster.wait_for(
        lambda: [record.value for record in cluster.records("t", 2)] == [b"in 2"], what="the record of the next leader"
    )
    with pytest.raises(UnknownTopicOrPartition):
        cluster.records("u")
    with pytest.raises(UnknownTopicOrPartition):
        cluster.records("t", 3)


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_group_is_asked_for_where_its_coordinator_is(cluster: Cluster) -> None:
    assert cluster.committed("g") == {}, "nobody has asked for a coordinator"
    with pytest.raises(TimeoutError, match=r"group g with 1 stable members .*; no coordinator is ready"):
        cluster.wait_for_group("g", timeout=0)
    cluster.create_topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]})
    with producing(cluster) as producer:
        write(producer, b"a", b"b")
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "session_timeout_ms": 60_000}
    with barnabas.Consumer({**QUICK, **settings}, "t", bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert [record.value for record in consumer.poll(timeout=60)]
        cluster.wait_for_group("g")
        consumer.commit({("t", 0): 1})
        coordinator = cluster.admin.describe_groups("g")["g"].coordinator
        assert cluster.committed("g") == cluster.broker(coordinator).committed("g") == {("t", 0): 1}
        assert cluster.lag("g") == {("t", 0): 1}
        other = cluster.broker(others(cluster, coordinator)[0])
        elsewhere = rf"does not coordinate group g, broker {coordinator} does: ask broker\({coordinator}\)"
        for call in (other.committed, other.lag, other.wait_for_group):
            with pytest.raises(NotCoordinator, match=elsewhere):
                call("g")
        cluster.kill(coordinator)
        assert cluster.lag("g") == {("t", 0): 1}, "as the next coordinator tells"


# --- log directories ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [False, True])
def test_replicas_move_between_the_log_directories_of_a_broker(processes: bool) -> None:
    with Cluster(2, processes=processes, log_dirs=2) as cluster:
        cluster.create_topic("t", 4, assignments={number: [1, 2] for number in range(4)})
        cluster.broker(1).produce("t", b"x", partition=0)
        one, two = (str(log_dir) for log_dir in cluster.broker(2).log_dirs)
        homes = {
            replica.partition: each.path
            for each in cluster.admin.describe_log_dirs([2])[2]
            for replica in each.replicas
            if replica.topic == "t"
        }
        assert {homes[0], homes[3]} == {one, two}
        away = one if homes[0] == two else two
        cluster.admin.alter_replica_log_dirs({("t", 0, 2): away})
        cluster.wait_for(lambda: (Path(away) / "t-0").is_dir(), what="the log in the other directory")
        cluster.wait_for(lambda: same_logs(cluster), what="the same log in both replicas")
        assert [len(log) for log in cluster.logs("t").values()] == [1, 1]


def test_no_disk_has_all_replicas_of_a_partition() -> None:
    with Cluster(log_dirs=2) as cluster:
        cluster.create_topic("t", 4, replication_factor=3)
        homes: dict[int, set[int]] = {}
        for broker in map(cluster.broker, (1, 2, 3)):
            for disk, log_dir in enumerate(broker.log_dirs):
                for path in log_dir.glob("t-*"):
                    homes.setdefault(int(path.name[2:]), set()).add(disk)
        assert homes == {number: {0, 1} for number in range(4)}


def test_a_log_directory_that_is_removed_for_good_is_given_up(cluster: Cluster) -> None:
    follower = others(cluster, cluster.controller)[0]
    directory = cluster.broker(follower).data_dir
    cluster.create_topic("t", assignments={0: [follower]}, configs={"min.insync.replicas": "1"})
    cluster.broker(follower).produce("t", b"x")
    cluster.kill(follower)
    shutil.rmtree(directory)
    with pytest.raises(UsageError, match=rf"\['{directory}'\] are missing.*start\(i, lost_dirs=\[...\]\)"):
        cluster.start(follower)
    with pytest.raises(UsageError, match="name the broker as well"):
        Cluster().start(lost_dirs=directory)
    with pytest.raises(UsageError, match="are missing"):
        cluster.start(follower, lost_dirs=[directory / "another"])
    cluster.start(follower, lost_dirs=[directory])
    cluster.wait_in_sync()
    assert cluster.records("t") == []


def test_a_reset_gives_up_what_is_lost(cluster: Cluster) -> None:
    for killed in ([2], [1, 2, 3]):
        cluster.create_topic("t", assignments={0: [2]}, configs={"min.insync.replicas": "1"})
        cluster.broker(2).produce("t", b"x")
        for node_id in killed:
            cluster.kill(node_id)
        shutil.rmtree(cluster.broker(2).data_dir)
        cluster.reset()
        assert [cluster.broker(node_id).topics() for node_id in cluster.node_ids] == [[]] * 3


# --- reset ----------------------------------------------------------------------------------------------------------


def test_a_reset_waits_for_nothing_that_takes_seconds(cluster: Cluster) -> None:
    took: list[float] = []
    with Stopwatch() as now:
        for _ in range(3):  # a machine may be busy with others
            cluster.create_topic("t", 3)
            with producing(cluster) as producer:
                write(producer, b"x")
            began = now()
            cluster.reset()
            took.append(now() - began)
    assert min(took) < 5, "fifty milliseconds, on a machine that has nothing else to do"
    assert [cluster.broker(node_id).topics() for node_id in (1, 2, 3)] == [[], [], []]


def test_a_reset_ends_all_that_a_test_has_done(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t")
    cluster.kill(1)
    cluster.pause(2)
    cluster.cut(2, 3)
    cluster.disk(3).fail()
    cluster.clock(3).skew(5)
    cluster.reset()
    assert all(cluster.broker(node_id).is_running for node_id in (1, 2, 3))
    assert abs(cluster.clock(3).wall_ms() / 1000 - time.time()) < 2
    cluster.create_topic("t")
    with producing(cluster) as producer:
        write(producer, b"x")
    cluster.wait_for(lambda: same_logs(cluster), what="the same log in all replicas")


def test_waiting_in_vain_says_what_is_missing(cluster: Cluster) -> None:
    cluster.create_topic("t")
    cluster.kill(3)
    cluster.wait_for(lambda: cluster.in_sync_replicas("t") == {1, 2}, what="the ISR of two")
    with pytest.raises(TimeoutError, match="t-0 has 1, 2 of 1, 2, 3"):
        cluster.wait_in_sync(timeout=0.05)


def test_replicas_of_a_broker_that_was_just_killed_or_paused_are_not_in_sync(cluster: Cluster) -> None:
    leader, follower = others(cluster, cluster.controller)
    cluster.create_topic("t", assignments={0: [leader, follower, cluster.controller]})
    cluster.pause(follower)
    with pytest.raises(TimeoutError, match=f"broker {follower} is paused"):
        cluster.wait_in_sync(timeout=0)
    cluster.resume(follower)
    cluster.wait_in_sync()
    cluster.kill(follower)
    with pytest.raises(TimeoutError, match=f"broker {follower} does not run"):
        cluster.wait_in_sync(timeout=0)
    cluster.start(follower)
    cluster.wait_in_sync()
    assert cluster.in_sync_replicas("t") == {1, 2, 3}


def test_replicas_that_were_just_cut_off_are_not_in_sync(cluster: Cluster) -> None:
    controller = cluster.controller
    leader, follower = others(cluster, controller)
    cluster.create_topic("t", assignments={0: [leader, follower]})
    for other, one_way in ((leader, False), (leader, True), (controller, True)):
        cluster.cut(other, follower, one_way=one_way)
        with pytest.raises(TimeoutError, match=f"broker {follower} is cut off from broker {other}"):
            cluster.wait_in_sync(timeout=0)
        cluster.heal()
        cluster.wait_in_sync()
    cluster.create_topic("u", assignments={0: [controller, follower], 1: [controller, leader]})
    cluster.admin.delete_topics("t")
    cluster.cut(leader, follower)
    cluster.wait_in_sync()
