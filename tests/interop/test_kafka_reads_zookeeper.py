"""The tools of Apache Kafka 2.4.1 read the registry of a cluster of ours in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.testing import Broker
from zookeeper_server import ZooKeeperServer

from .harness.old_tools import needs_old_tools, run_tool

pytestmark = needs_old_tools


@pytest.fixture(scope="module")
def connect(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the registry of a broker with a topic."""
    connect = zookeeper.new_path()
    data_dir: Path = tmp_path_factory.mktemp("data")
    with Broker(data_dir=data_dir, settings={"zookeeper.connect": connect, "node.id": 7}) as broker:
        with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(barnabas.NewTopic("orders", 2, 1, {"retention.ms": "86400000"}))
        yield connect


def test_topics_are_listed(connect: str) -> None:
    assert run_tool(connect, "TopicCommand", "--list").split() == ["orders"]


def test_topics_are_described(connect: str) -> None:
    lines = run_tool(connect, "TopicCommand", "--describe", "--topic", "orders").splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "Topic: orders PartitionCount: 2 ReplicationFactor: 1 Configs: retention.ms=86400000",
        "Topic: orders Partition: 0 Leader: 7 Replicas: 7 Isr: 7",
        "Topic: orders Partition: 1 Leader: 7 Replicas: 7 Isr: 7",
    ]


def test_settings_are_described(connect: str) -> None:
    told = run_tool(connect, "ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "orders")
    assert told.strip() == "Configs for topic 'orders' are retention.ms=86400000"
