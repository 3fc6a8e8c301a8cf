"""One broker with records from before becomes three: `barnabas serve --brokers 3` upon its data directory."""

import contextlib
import itertools
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from barnabas import Admin, Consumer, NewTopic, Producer
from cli.conftest import run_barnabas
from cli.serve.processes import Serve, broker_pids, ready_addresses
from cli.serve.processes import serve as serve

BEFORE = 10_000


def three_ports() -> int:
    """Returns the first of three free ports in a row, which the system gives nobody else meanwhile."""
    for port in range(25_000 + os.getpid() % 2000 * 3, 32_000, 3):
        with contextlib.ExitStack() as taken, contextlib.suppress(OSError):
            for each in range(port, port + 3):
                taken.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
    raise AssertionError("no three ports in a row are free")


def send(address: str, until: threading.Event) -> list[bytes]:
    """Produces one record after the other, and returns those that were acknowledged."""
    acknowledged = []
    with Producer(bootstrap_servers=address) as producer:
        for number in itertools.count(BEFORE):
            value = b"%d" % number
            producer.send("t", value, partition=number % 2).result(timeout=60)
            acknowledged.append(value)
            if until.is_set():
                return acknowledged
    raise AssertionError


def read(address: str, sent: "Future[list[bytes]]") -> set[bytes]:
    """Consumes as a member of a group until it has all records, or gives up a minute after all were sent."""
    seen: set[bytes] = set()
    deadline: float | None = None
    with Consumer("t", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as consumer:
        while True:
            seen.update(record.value for record in consumer.poll(2))
            if sent.done():
                deadline = deadline or time.monotonic() + 60
                if seen >= all_records(sent.result()) or time.monotonic() > deadline:
                    return seen


def all_records(acknowledged: list[bytes]) -> set[bytes]:
    return {b"%d" % number for number in range(BEFORE)} | {*acknowledged}


def test_one_broker_grows_to_three_under_its_clients(serve: Serve, tmp_path: Path) -> None:
    port = three_ports()
    address = f"127.0.0.1:{port}"
    arguments = ("--data-dir", str(tmp_path / "data"), "--listen", address)
    environment = {"BARNABAS_BOOTSTRAP": address}
    stopping = threading.Event()
    with ThreadPoolExecutor() as threads:
        alone = serve(*arguments)
        assert alone.stdout is not None
        assert "is ready on" in alone.stdout.readline()
        with Admin(bootstrap_servers=address) as admin, Producer(bootstrap_servers=address) as producer:
            admin.create_topics([NewTopic("t", 2)])
            for number in range(BEFORE):
                producer.send("t", b"%d" % number, partition=number % 2)
            producer.flush()
            cluster_id = admin.describe_cluster().cluster_id
        sender = threads.submit(send, address, stopping)
        reader = threads.submit(read, address, sender)
        try:
            alone.send_signal(signal.SIGTERM)
            assert alone.wait(60) == 0

            process = serve(*arguments, "--brokers", "3")
            assert ready_addresses(process) == [f"127.0.0.1:{port + each}" for each in range(3)]
            pids = broker_pids(process)
            with Admin(bootstrap_servers=address) as admin:
                described = admin.describe_cluster()
                assert (described.cluster_id, described.brokers[1].port) == (cluster_id, port)
            plan = run_barnabas("cluster", "reassign", "plan", "--replication-factor=3", environment=environment)
            done = run_barnabas(
                "cluster", "reassign", "execute", "-", "--wait", input=plan.stdout, environment=environment
            )
            assert done.returncode == 0, done.stderr
            assert re.match(r"reassigned \d+ partitions(, \d+ unchanged)?\n", done.stdout)
            with Admin(bootstrap_servers=address) as admin:
                topics = admin.list_topics(internal=True)
            assert {topic.name for topic in topics} == {"t", "__consumer_offsets"}
            replicas = [set(partition.in_sync_replicas) for topic in topics for partition in topic.in_order()]
            assert replicas == [{1, 2, 3}] * len(replicas)

            os.kill(pids[1], signal.SIGKILL)
            with Consumer("t", bootstrap_servers=f"127.0.0.1:{port + 1}", auto_offset_reset="earliest") as consumer:
                found = Counter[bytes]()
                while len(found) < BEFORE:
                    found.update(record.value for record in consumer.poll(10))
        finally:
            stopping.set()
        assert reader.result() == all_records(sender.result()), "the group goes on from its committed offsets"
    assert set(found.values()) == {1}
