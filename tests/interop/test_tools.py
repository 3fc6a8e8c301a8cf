"""Kafka's own command-line tools, unchanged, against the broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.peers import KAFKA_FROM_4_4

from .conftest import Drivers, wait_for
from .harness import wire
from .harness.broker import Broker, KafkaBroker, LocalBroker
from .harness.clients import KAFKA_TOOLS, Client, clients_without
from .harness.data import numbered
from .harness.groups import join, leave, settle
from .harness.tools import KafkaTools


def produce(broker: Broker, topic: str, *values: bytes, partition: int = 0) -> None:
    with wire.Connection(broker.address) as connection:
        assert wire.produce(connection, topic, partition, wire.simple_batch(*values)).error == 0


def test_topics(tools: KafkaTools, unique: Callable[[str], str]) -> None:
    name = unique("topic")
    settings = ["--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=3600000"]
    assert "Created topic" in tools.run("kafka-topics", "--create", "--topic", name, *settings).out
    assert name in tools.run("kafka-topics", "--list").lines
    told = tools.run("kafka-topics", "--describe", "--topic", name)
    assert "PartitionCount: 3" in told.out
    assert "retention.ms=3600000" in told.out
    assert len(re.findall(r"Leader: \d+\tReplicas: \d+\tIsr: \d+", told.out)) == 3
    tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
    wait_for(
        "five partitions", lambda: "PartitionCount: 5" in tools.run("kafka-topics", "--describe", "--topic", name).out
    )
    for problem in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert tools.run("kafka-topics", "--describe", "--topic", name, problem).lines == []
    again = tools.run("kafka-topics", "--create", "--topic", name, *settings, status=None)
    assert again.exit != 0
    assert "already exists" in again.out + again.err
    tools.run("kafka-topics", "--delete", "--topic", name)
    wait_for("the topic gone", lambda: name not in tools.run("kafka-topics", "--list").lines)


def test_topic_configs(tools: KafkaTools, topic: str) -> None:
    here = ["--entity-type", "topics", "--entity-name", topic]
    tools.run("kafka-configs", "--alter", *here, "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    told = tools.run("kafka-configs", "--describe", *here).out
    assert "retention.ms=7200000" in told
    assert "cleanup.policy=compact,delete" in told
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=7200000" in told
    every = tools.run("kafka-configs", "--describe", "--all", *here).out
    assert re.search(r"segment\.bytes=1073741824 .*DEFAULT_CONFIG", every)
    tools.run("kafka-configs", "--alter", *here, "--delete-config", "retention.ms")
    assert "retention.ms" not in tools.run("kafka-configs", "--describe", *here).out
    wrong = tools.run("kafka-configs", "--alter", *here, "--add-config", "retention.ms=soon", status=None)
    assert wrong.exit != 0
    assert "retention.ms" in wrong.err + wrong.out


def test_broker_configs(tools: KafkaTools) -> None:
    name = broker_id(tools)
    here = ["--entity-type", "brokers", "--entity-name", name]
    tools.run("kafka-configs", "--alter", *here, "--add-config", "message.max.bytes=1048600")
    assert "DYNAMIC_BROKER_CONFIG:message.max.bytes=1048600" in tools.run("kafka-configs", "--describe", *here).out
    tools.run("kafka-configs", "--alter", *here, "--delete-config", "message.max.bytes")
    assert "DYNAMIC_BROKER_CONFIG:message.max.bytes" not in tools.run("kafka-configs", "--describe", *here).out
    every = tools.run("kafka-configs", "--describe", "--all", *here).out
    assert "log.dirs=" in every
    default = ["--entity-type", "brokers", "--entity-default"]
    tools.run("kafka-configs", "--alter", *default, "--add-config", "message.max.bytes=1048700")
    assert "message.max.bytes=1048700" in tools.run("kafka-configs", "--describe", *default).out
    tools.run("kafka-configs", "--alter", *default, "--delete-config", "message.max.bytes")


def broker_id(tools: KafkaTools) -> str:
    found = re.search(r"\(id: (\d+) rack:", tools.run("kafka-broker-api-versions").out)
    assert found is not None
    return found[1]


def test_get_offsets(tools: KafkaTools, unique: Callable[[str], str], broker: Broker) -> None:
    name = unique("topic")
    wire.create_topic(broker.address, name, partitions=2)
    produce(broker, name, b"1", b"2", b"3", partition=1)
    assert tools.run("kafka-get-offsets", "--topic", name).lines == [f"{name}:0:0", f"{name}:1:3"]
    assert tools.run("kafka-get-offsets", "--topic", name, "--time", "-2").lines == [f"{name}:0:0", f"{name}:1:0"]
    # The latest timestamp: the first record that has it.
    assert tools.run("kafka-get-offsets", "--topic", name, "--time", "max-timestamp").lines[-1] in (
        f"{name}:1:0",
        f"{name}:1:2",
    )


def test_console_producer_and_consumer(tools: KafkaTools, topic: str) -> None:
    options = [
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
        "--compression-codec",
        "lz4",
    ]
    tools.run("kafka-console-producer", "--topic", topic, *options, stdin="a:one\nb:two\na:three\n")
    options = ["--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"]
    told = tools.run(
        "kafka-console-consumer",
        "--topic",
        topic,
        "--from-beginning",
        "--max-messages",
        "3",
        "--timeout-ms",
        "60000",
        *options,
    )
    assert [line.split("\t") for line in told.lines] == [
        ["Offset:0", "a", "one"],
        ["Offset:1", "b", "two"],
        ["Offset:2", "a", "three"],
    ]
    assert "Processed a total of 3 messages" in told.err


def test_consumer_groups(tools: KafkaTools, topic: str, unique: Callable[[str], str], broker: Broker) -> None:
    group = unique("group")
    produce(broker, topic, *(str(index).encode() for index in range(10)))
    consume = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10", "--timeout-ms", "60000"]
    assert len(tools.run("kafka-console-consumer", *consume).lines) == 10
    assert group in tools.run("kafka-consumer-groups", "--list").lines
    of_group = ["--group", group]
    wait_for("the committed offset", lambda: row(tools, group, topic)[3:6] == ["10", "10", "0"])
    assert "Empty" in tools.run("kafka-consumer-groups", "--describe", "--state", *of_group).out

    reset = [*of_group, "--topic", topic, "--reset-offsets", "--execute"]
    tools.run("kafka-consumer-groups", *reset, "--to-offset", "4")
    assert row(tools, group, topic)[3:6] == ["4", "10", "6"]
    tools.run("kafka-consumer-groups", *reset, "--shift-by", "2")
    assert row(tools, group, topic)[3:6] == ["6", "10", "4"]
    tools.run("kafka-consumer-groups", *reset, "--to-earliest")
    assert row(tools, group, topic)[3:6] == ["0", "10", "10"]
    tools.run("kafka-consumer-groups", "--delete-offsets", *of_group, "--topic", topic)
    tools.run("kafka-consumer-groups", "--delete", *of_group)
    assert group not in tools.run("kafka-consumer-groups", "--list").lines


def row(tools: KafkaTools, group: str, topic: str) -> list[str]:
    """GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …, wherever the tool's version puts them."""
    told = tools.run("kafka-consumer-groups", "--describe", "--offsets", "--group", group).lines
    head = next(line.split() for line in told if "CURRENT-OFFSET" in line)
    found = next(line.split() for line in told if topic in line.split())
    by_name = dict(zip(head, found, strict=False))
    return [by_name[name] for name in ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]


@pytest.mark.parametrize("client", clients_without("commit"), ids=str)
def test_members_of_a_group_are_told(
    client: Client, drivers: Drivers, tools: KafkaTools, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    member = join(drivers(client), group, [topic])
    settle([member], 1)
    drivers(client).call("produce", topic=topic, records=numbered(5))
    drivers(client).call("commit", id=member[1], offsets=[[topic, 0, 2]])
    assert "Stable" in tools.run("kafka-consumer-groups", "--describe", "--state", "--group", group).out
    told = tools.run("kafka-consumer-groups", "--describe", "--members", "--verbose", "--group", group).out
    assert re.search(rf"{re.escape(topic)}[:(]0", told)
    assert "127.0.0.1" in told
    assert row(tools, group, topic)[3:6] == ["2", "5", "3"]
    leave(member)


def test_delete_records(tools: KafkaTools, topic: str, broker: Broker, tmp_path: Path) -> None:
    produce(broker, topic, *(b"x" for _ in range(10)))
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 6}], "version": 1}))
    assert "low_watermark: 6" in tools.run("kafka-delete-records", "--offset-json-file", str(wanted)).out
    assert tools.run("kafka-get-offsets", "--topic", topic, "--time", "-2").lines == [f"{topic}:0:6"]


def test_log_dirs(tools: KafkaTools, topic: str, own_broker: LocalBroker) -> None:
    produce(own_broker, topic, b"some bytes")
    told = tools.run("kafka-log-dirs", "--describe", "--topic-list", topic).lines
    answer = json.loads(next(line for line in told if line.startswith("{")))
    (directory,) = answer["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(own_broker.data_dir)
    assert directory["error"] is None
    (partition,) = directory["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] == (own_broker.data_dir / f"{topic}-0/00000000000000000000.log").stat().st_size


def test_leader_election(tools: KafkaTools, topic: str) -> None:
    one = ["--topic", topic, "--partition", "0"]
    told = tools.run("kafka-leader-election", "--election-type", "preferred", *one)
    assert "Valid replica already elected" in told.out
    tools.run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")


def test_broker_api_versions(tools: KafkaTools, broker: Broker) -> None:
    told = tools.run("kafka-broker-api-versions").out
    assert broker.bootstrap in told
    api_versions = 5 if KAFKA_FROM_4_4 else 4
    for name, newest in (("Produce(0)", 13), ("Fetch(1)", 18), ("Metadata(3)", 13), ("ApiVersions(18)", api_versions)):
        assert re.search(rf"{re.escape(name)}: .*\[usable: {newest}\]", told), name
    assert "UNKNOWN" not in told


def test_cluster(tools: KafkaTools, broker: Broker) -> None:
    told = tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", broker.bootstrap, connect=False)
    assert re.search(r"Cluster ID: [A-Za-z0-9_-]{22}", told.out)
    told = tools.run("kafka-cluster", "list-endpoints", "--bootstrap-server", broker.bootstrap, connect=False)
    host, port = broker.address
    assert re.search(rf"\s{re.escape(host)}\s+{port}\s", told.out)


def test_features(tools: KafkaTools) -> None:
    told = tools.run("kafka-features", "describe").out
    assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 2\s", told)
    for dry_run in ([], ["--dry-run"]):
        told = tools.run("kafka-features", "upgrade", "--feature", "transaction.version=2", *dry_run).out
        assert "upgraded to 2" in told
    told = tools.run("kafka-features", "upgrade", "--feature", "transaction.version=3", status=1).out
    assert "Invalid update version 3 for feature transaction.version" in told


def test_features_that_are_lowered(tools: KafkaTools, broker: Broker) -> None:
    """Barnabas has one level of each. Apache Kafka is only asked: all other tests need what it would lower."""
    lower = ["downgrade", "--feature", "transaction.version=1"]
    if isinstance(broker, KafkaBroker):
        assert "can be downgraded to 1" in tools.run("kafka-features", *lower, "--dry-run").out
        told = tools.run("kafka-features", "disable", "--feature", "group.version", "--dry-run").out
        assert "group.version can be disabled" in told
    else:
        told = tools.run("kafka-features", *lower, status=1).out
        assert "Broker 1 only supports versions 2" in told
        told = tools.run("kafka-features", "disable", "--feature", "group.version").out
        assert "group.version was disabled" in told


def test_groups(tools: KafkaTools, topic: str, unique: Callable[[str], str], broker: Broker) -> None:
    group = unique("group")
    produce(broker, topic, b"x")
    consume = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"]
    tools.run("kafka-console-consumer", *consume)
    told = tools.run("kafka-groups", "--list").out
    assert re.search(rf"{re.escape(group)}\s+Classic\s+consumer", told)


def test_performance_tools(tools: KafkaTools, topic: str) -> None:
    told = tools.run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "compression.type=lz4"),
    )
    assert "5000 records sent" in told.out
    told = tools.run("kafka-consumer-perf-test", "--topic", topic, "--num-records", "5000", "--timeout", "20000")
    assert re.search(r", 5000, ", told.out)


def test_the_tools_are_here() -> None:
    """So that a run without them is seen to be one."""
    if reason := KAFKA_TOOLS.missing():
        pytest.skip(reason)
