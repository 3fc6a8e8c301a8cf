"""A broker that lets hanging transactions be written, and `barnabas transactions` against it."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas import Admin
from barnabas.client.admin.topics import NewTopic
from cli.conftest import run_barnabas
from cli.transactions.rig import Ask


@pytest.fixture(scope="module")
def transactional() -> Iterator[str]:
    """host:port of a broker."""
    external = os.environ.get("BARNABAS_TEST_BROKER")
    if external:
        yield external
        return
    from barnabas.testing import Broker

    settings = {"transaction.partition.verification.enable": False, "transaction.state.log.num.partitions": 3}
    with Broker(settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(transactional: str, name: str) -> str:
    with Admin(bootstrap_servers=transactional) as admin:
        admin.create_topics(NewTopic(name, 3, 1))
        admin.list_offsets({(name, index): "latest" for index in range(3)})  # waits until there are leaders
    return name


@pytest.fixture
def ask(transactional: str) -> Ask:
    """`barnabas transactions ... --json`, decoded."""

    def run(*arguments: str) -> Any:
        done = run_barnabas("transactions", *arguments, "--json", environment={"BARNABAS_BOOTSTRAP": transactional})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def text(transactional: str) -> Callable[..., tuple[int, str]]:
    """`barnabas transactions ...`: exit code, and what was printed, wherever."""

    def run(*arguments: str) -> tuple[int, str]:
        done = run_barnabas("transactions", *arguments, environment={"BARNABAS_BOOTSTRAP": transactional})
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def begun(transactional: str, topic: str, name: str) -> Any:
    """A producer whose transaction is open in partitions 0 and 2."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer({"bootstrap.servers": transactional, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 2):
        producer.produce(topic, b"v", partition=partition)
    producer.flush(60)
    return producer
