"""Kafka's own command-line tools, all run in one JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bench.peers import CONFIG_COMMAND

from .driver import Driver

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": CONFIG_COMMAND,
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}


@dataclass(frozen=True)
class Run:
    """What a tool printed and the status that it exited with."""

    exit: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.strip()]


class KafkaTools:
    """Runs the tools by the names of their scripts."""

    def __init__(self, driver: Driver, bootstrap: str) -> None:
        self._driver = driver
        self._bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: str = "", status: int | None = 0, connect: bool = True) -> Run:
        """Run and check the exit status (None: any)."""
        where = ["--bootstrap-server", self._bootstrap] if connect else []
        answer: dict[str, Any] = self._driver.call(
            "run", timeout_s=100, tool=CLASSES[tool], arguments=[*where, *arguments], stdin=stdin
        )
        done = Run(answer["exit"], answer["out"], answer["err"])
        command = json.dumps([tool, *arguments])
        assert status is None or done.exit == status, f"{command}: exit {done.exit}\n{done.out}\n{done.err}"
        return done
