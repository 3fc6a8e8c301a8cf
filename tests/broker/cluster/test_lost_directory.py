"""A broker of a cluster loses one of its two data directories: only the replicas that were there are new."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.errors import NotYet
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from broker.wire import server_of

PARTITIONS = 6
"""The first three begin in the same directory, the next ones in the other."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, Broker]]:
    with ExitStack() as stack:
        yield {node_id: stack.enter_context(member(tmp_path, node_id)) for node_id in (1, 2)}


def member(tmp_path: Path, node_id: int) -> Broker:
    directories = f"{tmp_path / f'{node_id}a'},{tmp_path / f'{node_id}b'}"
    settings = {"node.id": node_id, "registry.file": str(tmp_path / "registry.db")}
    return Broker(data_dir=directories, settings=settings)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def admin(broker: Broker) -> barnabas.Admin:
    return barnabas.Admin(bootstrap_servers=broker.bootstrap_servers)


def leaders(broker: Broker) -> dict[int, int]:
    with admin(broker) as client:
        return {number: view.leader for number, view in client.describe_topics("t")["t"].partitions.items()}


def in_sync(broker: Broker) -> list[set[int]]:
    with admin(broker) as client:
        return [set(view.in_sync_replicas) for view in client.describe_topics("t")["t"].partitions.values()]


def fill(broker: Broker, min_insync_replicas: int, replicas: list[int]) -> list[set[int]]:
    """Writes a record to each partition. Returns the partitions in each directory of broker 2."""
    with admin(broker) as client:
        wait_for(lambda: set(client.describe_cluster().brokers) == {1, 2})
        assignments = dict.fromkeys(range(PARTITIONS), replicas)
        configs = {"min.insync.replicas": str(min_insync_replicas)}
        client.create_topics(NewTopic("t", assignments=assignments, configs=configs))
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
        for number in range(PARTITIONS):
            producer.send("t", b"record", partition=number).result(60)
    with admin(broker) as client:
        described = client.describe_log_dirs([2])[2]
    found = [{r.partition for r in each.replicas if r.topic == "t"} for each in described]
    assert [len(each) for each in found] == [PARTITIONS // 2] * 2
    return found


@pytest.mark.parametrize("leader", [1, 2])
def test_a_directory_that_fails_costs_only_the_leaders_in_it(
    brokers: dict[int, Broker], tmp_path: Path, leader: int
) -> None:
    one = brokers[1]
    kept, gone = fill(one, min_insync_replicas=1, replicas=[leader, 3 - leader])
    (tmp_path / "2b").rename(tmp_path / "unmounted")
    expected = dict.fromkeys(kept, leader) | dict.fromkeys(gone, 1)
    members = [{1, 2} if number in kept else {1} for number in range(PARTITIONS)]
    wait_for(lambda: leaders(one) == expected and in_sync(one) == members)
    with barnabas.Producer(bootstrap_servers=one.bootstrap_servers, acks="all") as producer:
        for number in range(PARTITIONS):
            producer.send("t", b"another", partition=number).result(60)
    assert leaders(one) == expected
    assert in_sync(one) == members
    (tmp_path / "unmounted").rename(tmp_path / "2b")
    brokers[2].kill()
    brokers[2].start()
    wait_for(lambda: in_sync(one) == [{1, 2}] * PARTITIONS)


def test_a_broker_that_lost_a_directory_waits_for_those_who_have_its_replicas(
    brokers: dict[int, Broker], tmp_path: Path
) -> None:
    one, two = brokers[1], brokers[2]
    kept, gone = fill(one, min_insync_replicas=2, replicas=[2, 1])
    one.kill()
    wait_for(lambda: in_sync(two) == [{2}] * PARTITIONS)
    two.kill()
    shutil.rmtree(tmp_path / "2b")
    with pytest.raises(NotYet, match="this start waits for broker 1"):
        two.start()
    one.start()
    wait_for(lambda: leaders(one) == dict.fromkeys(kept | gone, 1))
    two.start()
    wait_for(lambda: in_sync(two) == [{1, 2}] * PARTITIONS)
    for broker in (one, two):
        logs = server_of(broker).log_manager.logs
        assert [logs[TopicPartition("t", number)].log_end_offset for number in range(PARTITIONS)] == [1] * PARTITIONS
