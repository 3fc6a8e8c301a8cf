"""Ctrl-C, close and cancellation get out of every call of the clients at once, whatever blocks it.

Within 100 ms, it is promised. The limit here is what a busy machine keeps and a wait for one of our timeouts would not.
`-s` tells the figures.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import CoordinatorNotAvailable
from barnabas.testing import Broker

from .blocked_calls import GROUP, PLANS, TOPIC

LIMIT_S = 2.0
ROOT = Path(__file__).parents[2]
SLOW = (
    "PRODUCE",
    "FETCH",
    "LIST_OFFSETS",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "LEAVE_GROUP",
    "END_TXN",
    "ADD_OFFSETS_TO_TXN",
    "TXN_OFFSET_COMMIT",
    "CREATE_TOPICS",
    "LIST_GROUPS",
    "DESCRIBE_GROUPS",
    "DELETE_GROUPS",
    "DELETE_RECORDS",
    "DESCRIBE_CLUSTER",
    "DELETE_TOPICS",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_TRANSACTIONS",
    "DESCRIBE_PRODUCERS",
)


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        yield broker


@contextlib.contextmanager
def slow(broker: Broker) -> Iterator[str]:
    for api in SLOW:
        broker.faults.delay(api, 3600.0, times=None)
    yield broker.bootstrap_servers
    broker.faults.clear()


@contextlib.contextmanager
def no_coordinator(broker: Broker) -> Iterator[str]:
    broker.faults.error("FIND_COORDINATOR", CoordinatorNotAvailable, times=None)
    yield broker.bootstrap_servers
    broker.faults.clear()


@contextlib.contextmanager
def rebalance(broker: Broker) -> Iterator[str]:
    """Another member is alive and does not poll."""
    with barnabas.Consumer(TOPIC, bootstrap_servers=broker.bootstrap_servers, group_id=GROUP) as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        yield broker.bootstrap_servers


@contextlib.contextmanager
def refused(_: Broker) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    yield address


@contextlib.contextmanager
def silent(_: Broker) -> Iterator[str]:
    """The system takes connections, and nobody answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def no_connection(_: Broker) -> Iterator[str]:
    """Nobody takes connections, and the system's queue of them is full: it leaves out what comes."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _number in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def no_name(_: Broker) -> Iterator[str]:
    yield "broker.example:9092"


KINDS = {
    "refused": refused,
    "no connection": no_connection,
    "no name": no_name,
    "silent": silent,
    "slow": slow,
    "rebalance": rebalance,
    "no coordinator": no_coordinator,
}


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("front", ["sync", "aio"])
def test_every_call_ends_at_once(front: str, kind: str, own_broker: Broker) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}
    with KINDS[kind](own_broker) as address:
        ended = subprocess.run(
            [sys.executable, "-m", "client.blocked_calls", front, kind, address],
            capture_output=True,
            text=True,
            timeout=280,
            env=environment,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    worst = sorted(lines, key=lambda line: max(line["took"], line["closed"]))[-5:]
    print(f"\n{front}, {kind}: {len(lines)} calls", *worst, sep="\n    ")
    assert {line["what"] for line in lines} == {"ctrl-c", "close", *["cancel"] * (front == "aio")}
    assert max(worst[-1]["took"], worst[-1]["closed"]) < LIMIT_S, worst[-1]
    assert not ended.stderr
