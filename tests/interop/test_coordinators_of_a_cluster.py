"""Transactions of the client libraries over three brokers, whose transaction coordinator is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.cluster.cluster_processes import ClusterProcesses
from broker.cluster.cluster_processes import processes as processes

from .conftest import Drivers
from .harness.clients import CLIENTS, NO_TRANSACTIONS, Client
from .harness.driver import Driver
from .test_transactional_producers import PARTITIONS, Producer

GIVES_UP = {"kafka-python": "kafka-python 3.0.12 loses the EndTxn for which it has no connection, and waits for ever"}
TRANSACTIONAL = [client for client in CLIENTS if client.name not in NO_TRANSACTIONS | GIVES_UP]


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    processes.heal()
    return processes


@pytest.fixture
def driver(client: Client, cluster: ClusterProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    bootstrap = cluster.bootstrap.partition(",")[0]  # not every client program takes several
    driver = Drivers(bootstrap, tmp_path_factory.mktemp("clients")).fresh(client)
    yield driver
    driver.stop()


@pytest.mark.parametrize("client", TRANSACTIONAL, ids=lambda client: client.name)
def test_a_transaction_outlives_its_coordinator(cluster: ClusterProcesses, client: Client, driver: Driver) -> None:
    topic, name = f"t-{client.name}", f"x-{client.name}"
    cluster.create(topic, ((1, 2, 3), (2, 3, 1)))
    producer = Producer(driver, name)
    for commit in (True, False, True):
        producer.begin(topic, "before")
        producer.end(commit=commit)
    producer.begin(topic, "open")
    cluster.kill(cluster.coordinator(transactional_id=name))
    producer.end(commit=True)
    producer.begin(topic, "after")
    producer.end(commit=True)
    producer.close()
    expected = 4 * PARTITIONS
    cluster.wait_for(lambda: len(cluster.committed(topic)) >= expected, "committed records")
    assert len(cluster.committed(topic)) == expected
