"""Kafka's tools and kafka-python move replicas between the log directories of a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker

from .conftest import Drivers
from .harness.clients import KAFKA_TOOLS
from .harness.tools import KafkaTools


@pytest.fixture
def directories(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "one"), str(tmp_path / "two")


@pytest.fixture
def two_disks(directories: tuple[str, str]) -> Iterator[Broker]:
    """With ten records in two partitions."""
    with Broker(data_dir=",".join(directories)) as broker:
        broker.create_topic("t", partitions=2)
        for number in range(10):
            broker.produce("t", b"record", partition=number % 2)
        yield broker


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def test_kafka_reassign_partitions(
    drivers: Drivers, two_disks: Broker, directories: tuple[str, str], tmp_path: Path
) -> None:
    tools = KafkaTools(drivers(KAFKA_TOOLS), two_disks.bootstrap_servers)
    plan = tmp_path / "plan.json"

    def run(what: str) -> str:
        return tools.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), what).out

    for homes in (directories, directories[::-1]):
        entries = [
            {"topic": "t", "partition": number, "replicas": [1], "log_dirs": [path]}
            for number, path in enumerate(homes)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        assert run("--execute").count("moving log directory to") == 2
        wait_for(lambda: "in progress" not in run("--verify"))
        assert run("--verify").count("completed successfully") == 2
        described = json.loads(tools.run("kafka-log-dirs", "--describe", "--topic-list", "t").lines[-1])
        found = {each["logDir"]: each["partitions"] for each in described["brokers"][0]["logDirs"]}
        assert [(each["partition"], each["isFuture"]) for path in homes for each in found[path]] == [
            ("t-0", False),
            ("t-1", False),
        ]
    assert two_disks.end_offsets("t") == [5, 5]


def test_kafka_python(two_disks: Broker, directories: tuple[str, str]) -> None:
    kafka = pytest.importorskip("kafka.admin")
    structs = pytest.importorskip("kafka.structs")
    client = kafka.KafkaAdminClient(bootstrap_servers=two_disks.bootstrap_servers)

    def homes() -> dict[int, list[str]]:
        """The directories with each partition, those of future replicas included."""
        found: dict[int, list[str]] = {0: [], 1: []}
        for described in client.describe_log_dirs():
            for directory in described["log_dirs"]:
                for topic in directory["topics"]:
                    for partition in topic["partitions"]:
                        found[partition["partition_index"]].append(directory["log_dir"])
        return found

    try:
        for path in directories:
            client.alter_replica_log_dirs({structs.TopicPartitionReplica("t", number, 1): path for number in (0, 1)})
            wait_for(lambda path=path: homes() == {0: [path], 1: [path]})
    finally:
        client.close()
    assert two_disks.end_offsets("t") == [5, 5]
