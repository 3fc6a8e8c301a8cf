"""The operations of a cluster whose registry is in ZooKeeper: they ask brokers, so they are the same."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.cluster.roll import Roll
from barnabas.connection.cluster import Broker
from barnabas.testing import Cluster
from cli.conftest import run_barnabas
from steady_clients import steady_clients
from zookeeper_server import running_server

pytest.importorskip("kazoo", reason="the registry over ZooKeeper needs kazoo")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Cluster]:
    for server in running_server(tmp_path):
        settings = {"zookeeper.connect": server.new_path()}
        with Cluster(processes=True, settings=settings) as cluster:
            yield cluster


def test_brokers_are_balanced_restarted_and_removed_under_clients(kafka: Cluster) -> None:
    environment = {"BARNABAS_BOOTSTRAP": kafka.bootstrap_servers}
    kafka.create_topic("t", assignments={number: [1, 2] for number in range(6)}, configs={"min.insync.replicas": "1"})

    def restart(broker: Broker, _timeout_s: float) -> None:
        kafka.stop(broker.node_id)
        kafka.start(broker.node_id)

    with steady_clients(kafka.bootstrap_servers, "t"):
        moved = run_barnabas("cluster", "balance", "--topic", "t", "--execute", environment=environment)
        assert moved.returncode == 0, moved.stderr
        replicas = [p.replicas for view in kafka.admin.list_topics() for p in view.in_order()]
        assert any(3 in each for each in replicas)
        assert sorted(Roll(kafka.admin, restart, 60).run([1, 2, 3])) == [1, 2, 3]
        doctor = run_barnabas("cluster", "doctor", "--write", "--json", environment=environment)
        assert doctor.returncode == 0, doctor.stdout
        registry = next(c for c in json.loads(doctor.stdout)["checks"] if c["name"] == "registry")
        assert "ZooKeeper at" in registry["target"] + registry["detail"], "or a warning, if it is slow"
        drained = run_barnabas("cluster", "drain", "3", "--execute", environment=environment)
        assert drained.returncode == 1
        assert "needs 3 brokers for its replicas, and there are 2 brokers to put them on" in drained.stderr
