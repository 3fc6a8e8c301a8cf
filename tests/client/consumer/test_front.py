"""`barnabas.Consumer` among threads, signals and forks."""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import barnabas
from barnabas.errors import ClientClosed, UsageError
from barnabas.testing import Cluster
from barnabas.types import TopicPartition

pytestmark = pytest.mark.timeout(120)  # here nearly everything ends only when all records have come


def test_a_constructor_that_fails_leaves_nothing_open(settings: dict[str, Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(UsageError, match="no regular expression"):
            barnabas.Consumer("^(", **settings)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_child_of_a_fork_reads_for_itself(topic: str, settings: dict[str, Any]) -> None:
    del settings["group_id"]
    consumer = barnabas.Consumer(**settings)
    consumer.assign([(topic, 0)])
    assert consumer.poll(60, max_records=10)[-1].offset == 9
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(write, b"%d" % consumer.poll(60, max_records=1)[0].offset)
        os._exit(0)
    os.close(write)
    assert os.read(read, 10) == b"0"  # a consumer of its own, at the beginning
    os.close(read)
    os.waitpid(child, 0)
    assert consumer.poll(60, max_records=1)[0].offset == 10
    consumer.close()


@pytest.mark.parametrize("processes", [False, True])
def test_a_close_with_time_commits_to_a_broker_that_comes_back(processes: bool) -> None:
    """Meanwhile reads of other threads end, and another close does nothing."""
    with Cluster(brokers=1) as cluster, ThreadPoolExecutor(2) as pool:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        with barnabas.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("orders", b"1").result(60)
        consumer = barnabas.Consumer("orders", settings, enable_auto_commit=not processes)
        if processes:
            handled = threading.Event()
            processing = pool.submit(consumer.process, lambda _: handled.set())
            assert handled.wait(60)
        else:
            assert len(consumer.poll(60)) == 1
        cluster.stop(1)
        closing = pool.submit(consumer.close, 60)
        while not consumer._state.closing:
            os.sched_yield()
        with pytest.raises(ClientClosed):
            consumer.poll(60)
        assert list(consumer) == []
        consumer.close(60)
        cluster.start(1)
        closing.result()
        if processes:
            processing.result()
        with barnabas.Consumer("orders", settings) as again:
            committed = again.committed([("orders", 0)])[TopicPartition("orders", 0)]
    assert committed is not None
    assert committed.offset == 1


def test_a_listener_that_closes_is_called_once(topic: str, settings: dict[str, Any]) -> None:
    revoked = []

    def close(consumer: barnabas.Consumer, partitions: Any) -> None:
        revoked.append(partitions)
        consumer.close(60)

    consumer = barnabas.Consumer(topic, settings, on_revoked=close)
    assert consumer.poll(60)
    consumer.close(60)
    assert len(revoked) == 1
