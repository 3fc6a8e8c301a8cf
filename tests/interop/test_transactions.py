"""Kafka's own transactional copier, and its tools that look at transactions, unchanged, against the broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from .conftest import wait_for
from .harness import wire
from .harness.broker import Broker, LocalBroker
from .harness.tools import KafkaTools

PARTITIONS = 3
RECORDS = 400  # in each partition
TRANSACTION_SIZE = 20
STATES = {"1": "Ongoing", "2": "PrepareCommit", "4": "CompleteCommit", "5": "CompleteAbort"}
"""What the tool of Kafka 4.4 calls the states, by what the records have and the tools before it told."""


class Copy(NamedTuple):
    """Three partitions, the topic that they were copied to, and who did it."""

    source: str
    target: str
    group: str
    transactional_id: str


def values(partition: int) -> list[str]:
    return [f"{partition}-{index}" for index in range(RECORDS)]


def consumed(tools: KafkaTools, topic: str, isolation: str) -> dict[int, list[str]]:
    """All values of a topic by partition, as Kafka's console consumer shows them."""
    options = ["--from-beginning", "--isolation-level", isolation, "--timeout-ms", "8000"]
    told = tools.run(
        "kafka-console-consumer", "--topic", topic, *options, "--formatter-property", "print.partition=true"
    )
    found: dict[int, list[str]] = {}
    for line in told.lines:
        partition, value = line.split("\t")
        found.setdefault(int(partition.removeprefix("Partition:")), []).append(value)
    return found


def copy(tools: KafkaTools, broker: Broker, job: Copy, *options: str) -> None:
    """Runs the copier, which aborts every third transaction by chance, until it has read what is there."""
    arguments = ["--broker-list", broker.bootstrap, "--input-topic", job.source, "--output-topic", job.target]
    arguments += ["--transactional-id", job.transactional_id, "--consumer-group", job.group, "--enable-random-aborts"]
    arguments += ["--transaction-size", str(TRANSACTION_SIZE), *options]
    told = tools.run("transactional-message-copier", *arguments, connect=False)
    last = json.loads(told.lines[-1])
    assert (last["stage"], last["remaining"]) == ("ShutdownComplete", 0), told.out[-1000:] + told.err[-1000:]


@pytest.fixture
def job(broker: Broker, unique: Callable[[str], str]) -> Copy:
    job = Copy(unique("source"), unique("target"), unique("group"), unique("copier"))
    for topic in (job.source, job.target):
        wire.create_topic(broker.address, topic, partitions=PARTITIONS)
    with wire.Connection(broker.address) as connection:
        for partition in range(PARTITIONS):
            batch = wire.simple_batch(*(value.encode() for value in values(partition)))
            assert wire.produce(connection, job.source, partition, batch).error == 0
    return job


def check(tools: KafkaTools, job: Copy) -> None:
    """Under read_committed the copy is the source. What was aborted may never have been sent: nothing is said of it."""
    expected = {partition: values(partition) for partition in range(PARTITIONS)}
    assert consumed(tools, job.target, "read_committed") == expected
    told = tools.run("kafka-consumer-groups", "--describe", "--offsets", "--group", job.group).out
    assert len(re.findall(rf"{re.escape(job.source)}\s+\d+\s+{RECORDS}\s+{RECORDS}\s+0\s", told)) == PARTITIONS, told


def test_a_group_member_copies_exactly_once(tools: KafkaTools, broker: Broker, job: Copy) -> None:
    copy(tools, broker, job, "--group-mode", "--input-partition", "0", "--use-group-metadata")
    check(tools, job)


def test_partitions_are_copied_one_by_one_without_a_member(tools: KafkaTools, broker: Broker, job: Copy) -> None:
    for partition in range(PARTITIONS):
        copy(tools, broker, job, "--input-partition", str(partition))
    check(tools, job)


def test_the_tools_tell_of_transactions(tools: KafkaTools, broker: Broker, job: Copy) -> None:
    copy(tools, broker, job, "--group-mode", "--input-partition", "0")
    listed: list[str] = []

    def ended() -> bool:
        """The last markers may still be under way."""
        lines = tools.run("kafka-transactions", "list").lines
        listed[:] = next(line.split() for line in lines if job.transactional_id in line)
        return listed[-1] in ("CompleteCommit", "CompleteAbort")

    wait_for("the last transaction's end", ended, tell=lambda: str(listed))
    producer_id = listed[2]
    described = table(tools, "describe", "--transactional-id", job.transactional_id)
    assert described["ProducerId"] == producer_id
    assert described["TransactionState"] == listed[-1]
    described = table(tools, "describe-producers", "--topic", job.target, "--partition", "0")
    assert described["ProducerId"] == producer_id
    assert described["CurrentTransactionStartOffset"] == "None"


def table(tools: KafkaTools, *arguments: str) -> dict[str, str]:
    """The first row under its head."""
    head, row, *_ = tools.run("kafka-transactions", *arguments).lines
    return dict(zip(head.split(), row.split(), strict=False))


def test_no_transaction_hangs(tools: KafkaTools, broker: Broker, job: Copy) -> None:
    copy(tools, broker, job, "--group-mode", "--input-partition", "0")
    told = tools.run("kafka-transactions", "find-hanging", "--topic", job.target).lines
    assert [line for line in told if job.target in line] == []


def test_dump_log_decodes_the_state_of_transactions(tools: KafkaTools, own_broker: LocalBroker, job: Copy) -> None:
    copy(tools, own_broker, job, "--group-mode", "--input-partition", "0")
    seen: list[str] = []

    def ended() -> bool:
        told = ""
        for file in sorted(own_broker.data_dir.glob("__transaction_state-*/*.log")):
            if file.stat().st_size:
                arguments = ["--transaction-log-decoder", "--print-data-log", "--files", str(file)]
                told += tools.run("kafka-dump-log", *arguments, connect=False).out
        lines = [line for line in told.splitlines() if f'"transactionalId":"{job.transactional_id}"' in line]
        told_states = [found[1] for line in lines if (found := re.search(r'"transactionStatus":"?(\w+)', line))]
        seen[:] = [STATES.get(state, state) for state in told_states]
        return bool(seen) and seen[-1] in ("CompleteCommit", "CompleteAbort")

    wait_for("the last transaction's end", ended, tell=lambda: str(seen))
    assert {"Ongoing", "PrepareCommit", "CompleteCommit"} <= set(seen)
