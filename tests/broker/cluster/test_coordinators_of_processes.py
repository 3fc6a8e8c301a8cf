"""Transactions and groups over three brokers, whose coordinators are killed with SIGKILL."""

import socket
import threading
from typing import Any

import pytest

import barnabas
from barnabas.connection.broker.client_request import client_id_field, request_frame
from barnabas.errors import NotCoordinator
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from barnabas.types import TopicPartition
from broker.cluster.cluster_processes import QUICK, ClusterProcesses
from broker.cluster.cluster_processes import processes as processes

ROUNDS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
"""The replicas of three partitions: each broker leads one."""
CALL_S = 60.0


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    processes.heal()
    with processes.admin() as admin:
        admin.delete_topics([name for name in ("t", "copy") if name in {view.name for view in admin.list_topics()}])
    processes.create("t", ROUNDS)
    return processes


def producer(cluster: ClusterProcesses, name: str = "x") -> barnabas.Producer:
    made = barnabas.Producer(bootstrap_servers=cluster.bootstrap, transactional_id=name, linger_ms=1, **QUICK)  # type: ignore[arg-type]
    made.init_transactions(timeout=CALL_S)
    return made


def send(sender: barnabas.Producer, text: str) -> list[str]:
    """One record to each partition, led by all three brokers; returns their values."""
    values = [f"{text}-{index}" for index in range(3)]
    for index, value in enumerate(values):
        sender.send("t", value.encode(), partition=index)
    return values


def ends(cluster: ClusterProcesses, topic: str, isolation: str) -> dict[TopicPartition, int]:
    partitions = [TopicPartition(topic, index) for index in range(3)]
    with barnabas.Consumer(
        bootstrap_servers=cluster.bootstrap,
        group_id=None,
        isolation_level=isolation,
        **QUICK,  # type: ignore[arg-type]
    ) as consumer:
        return consumer.end_offsets(partitions)


def wait_until_decided(cluster: ClusterProcesses, topic: str = "t") -> None:
    """Returns when every record is readable: all end markers are written and committed."""
    levels = ("read_committed", "read_uncommitted")
    cluster.wait_for(lambda: len({tuple(ends(cluster, topic, level).values()) for level in levels}) == 1, "end markers")


def test_transactions_over_leaders_on_all_brokers(cluster: ClusterProcesses) -> None:
    committed: list[str] = []
    with producer(cluster) as one, producer(cluster, "y") as two:
        for number in range(20):
            for sender in (one, two):
                sender.begin_transaction()
                values = send(sender, f"{number}-{id(sender)}")
                if number % 3:
                    sender.commit_transaction(timeout=CALL_S)
                    committed += values
                else:
                    sender.flush(timeout=CALL_S)
                    sender.abort_transaction(timeout=CALL_S)
    wait_until_decided(cluster)
    assert cluster.committed("t") == sorted(committed)


@pytest.mark.parametrize("moment", ["open", "decided"])
def test_the_coordinator_of_a_transaction_is_killed(cluster: ClusterProcesses, moment: str) -> None:
    with producer(cluster) as sender:
        committed: list[str] = []
        for _ in range(2):
            sender.begin_transaction()
            committed += send(sender, f"before-{len(committed)}")
            sender.flush(timeout=CALL_S)
            coordinator = cluster.coordinator(transactional_id="x")
            if moment == "open":
                cluster.kill(coordinator)
            sender.commit_transaction(timeout=CALL_S)
            if moment == "decided":
                cluster.kill(coordinator)  # end markers may be missing: the next coordinator writes them
            sender.begin_transaction()
            committed += send(sender, f"after-{len(committed)}")
            sender.commit_transaction(timeout=CALL_S)
            wait_until_decided(cluster)
            assert cluster.committed("t") == sorted(committed)
            cluster.heal()


def test_a_leader_is_killed_when_its_end_marker_is_due(cluster: ClusterProcesses) -> None:
    with producer(cluster) as sender:
        sender.begin_transaction()
        committed = send(sender, "one")
        sender.flush(timeout=CALL_S)
        coordinator = cluster.coordinator(transactional_id="x")
        leader = next(node_id for node_id in (1, 2, 3) if node_id != coordinator)
        cluster.kill(leader)
        sender.commit_transaction(timeout=CALL_S)
        wait_until_decided(cluster)
        assert cluster.committed("t") == committed
        sender.begin_transaction()
        send(sender, "two")
        sender.flush(timeout=CALL_S)
        sender.abort_transaction(timeout=CALL_S)
    wait_until_decided(cluster)
    assert cluster.committed("t") == committed


class Member:
    """A consumer that commits after every poll, in a thread of its own."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.committed: dict[int, int] = {}
        """The last acknowledged commit of each partition."""
        self.generations: list[int] = []
        self.went_back: list[str] = []
        self.values: set[str] = set()
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._consumer = barnabas.Consumer(
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            **QUICK,  # type: ignore[arg-type]
        )
        self._consumer.subscribe(["t"])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._poll()
            self._consumer.close(timeout=5)
        except BaseException as error:
            self.error = error

    def _poll(self) -> None:
        records = self._consumer.poll(timeout=0.05)
        if not records:
            return
        self.generations.append(self._consumer.group_metadata().generation_id)
        for record in records:
            known = self.committed.get(record.partition, 0)
            if record.offset < known:
                self.went_back.append(f"{record.partition}: {record.offset} after a commit of {known}")
            self.values.add(record.value.decode())
        try:
            self._consumer.commit(timeout=CALL_S)
        except barnabas.errors.CommitFailed:
            return  # a rebalance; the records come again
        for record in records:
            self.committed[record.partition] = record.offset + 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def test_the_coordinator_of_a_group_is_killed_again_and_again(cluster: ClusterProcesses) -> None:
    member = Member(cluster)
    try:
        sent = 0
        with barnabas.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=1, **QUICK) as sender:  # type: ignore[arg-type]

            def produce(count: int) -> None:
                nonlocal sent
                for number in range(sent, sent + count):
                    sender.send("t", str(number).encode(), partition=number % 3)
                sender.flush(timeout=CALL_S)
                sent += count

            produce(30)
            cluster.wait_for(lambda: len(member.values) == sent or member.error, "consumed records")
            for _ in range(3):
                coordinator = cluster.coordinator(group="g")
                produce(30)
                cluster.kill(coordinator)
                produce(30)
                cluster.wait_for(lambda: len(member.values) == sent or member.error, "consumed records")
                cluster.heal()
    finally:
        member.stop()
    assert member.went_back == []
    assert member.generations == sorted(member.generations)
    with cluster.admin() as admin:
        offsets = {key.partition: found.offset for key, found in admin.list_group_offsets("g").items()}
    assert offsets == member.committed == dict.fromkeys(range(3), sent // 3)


def copy(consumer: Any, sender: barnabas.Producer) -> int:
    """Copies the next records with their offsets in one transaction; returns their number. An aborted copy is read
    again."""
    records = consumer.poll(timeout=0.2, max_records=20)
    if not records:
        return 0
    offsets = {TopicPartition("t", record.partition): record.offset + 1 for record in records}
    try:
        sender.begin_transaction()
        for record in records:
            sender.send("copy", record.value, partition=record.partition)
        sender.send_offsets_to_transaction(offsets, consumer.group_metadata(), timeout=CALL_S)
        sender.commit_transaction(timeout=CALL_S)
        return len(records)
    except (barnabas.errors.TransactionFailed, barnabas.errors.CommitFailed):
        sender.abort_transaction(timeout=CALL_S)
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition("t", record.partition), record.offset)
        for partition, offset in first.items():
            if partition in consumer.assignment():
                consumer.seek(partition, offset)
        return 0


@pytest.mark.parametrize("victim", ["group", "transactional_id"])
def test_a_copy_is_exact_when_a_coordinator_is_killed(cluster: ClusterProcesses, victim: str) -> None:
    cluster.create("copy", ROUNDS)
    with barnabas.Producer(bootstrap_servers=cluster.bootstrap, **QUICK) as source:  # type: ignore[arg-type]
        for number in range(300):
            source.send("t", str(number).encode(), partition=number % 3)
    with (
        producer(cluster) as sender,
        barnabas.Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            **QUICK,  # type: ignore[arg-type]
        ) as consumer,
    ):
        copied = killed = 0
        while copied < 300:
            copied += copy(consumer, sender)
            if copied >= 100 and not killed:
                killed = cluster.coordinator(**{victim: "g" if victim == "group" else "x"})
                cluster.kill(killed)
    wait_until_decided(cluster, "copy")
    assert cluster.committed("copy") == sorted(str(number) for number in range(300))
    with cluster.admin() as admin:
        committed = admin.list_group_offsets("g", require_stable=True)
        offsets = {key.partition: found.offset for key, found in committed.items()}
    assert offsets == dict.fromkeys(range(3), 100)


def commit_one(bootstrap: str, group: str, offset: int) -> None:
    with barnabas.Admin(bootstrap_servers=bootstrap, request_timeout_ms=1000, **QUICK) as admin:  # type: ignore[arg-type]
        admin.alter_group_offsets(group, {TopicPartition("t", 0): offset}, timeout=CALL_S)


def test_a_coordinator_that_was_paused_shows_no_old_offsets(cluster: ClusterProcesses) -> None:
    """Requests that came meanwhile are read before it learns that another broker coordinates the group."""
    commit_one(cluster.bootstrap, "paused", 1)  # creates __consumer_offsets
    with cluster.admin() as admin:
        admin.elect_leaders()  # one broker may have been left with all partitions of the offsets
    controller = cluster.controller()  # nobody takes its place while its process exists
    groups: list[str] = []

    def find_groups() -> list[str]:
        groups[:] = [name for name in "abcdef" if cluster.coordinator(group=name) != controller]
        return groups

    cluster.wait_for(find_groups, "group that the controller does not coordinate")
    group = groups[0]
    commit_one(cluster.bootstrap, group, 5)
    paused = cluster.coordinator(group=group)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    with socket.create_connection(cluster.address(paused), CALL_S) as client:
        cluster.pause(paused)
        try:
            client.sendall(request_frame(request, 8, 1, client_id_field("test")))
            commit_one(cluster.others(paused), group, 6)
        finally:
            cluster.resume(paused)
        with client.makefile("rb") as frames:
            size = int.from_bytes(frames.read(4), "big")
            frame = frames.read(size)
    (found,) = decode(OffsetFetchResponse, 8, frame, 5)[0].groups
    assert found.error_code == NotCoordinator.code
