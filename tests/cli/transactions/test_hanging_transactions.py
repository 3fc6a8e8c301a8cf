"""Transactions that hang: found, and aborted."""

import time
from typing import Any

import pytest

from barnabas import Admin
from barnabas.cli.transactions import hanging_transactions
from barnabas.types import TopicPartition
from cli.transactions.rig import Ask, hang

pytest.importorskip("confluent_kafka")


def test_what_hangs_is_found_and_aborted(ask: Ask, text: Ask, transactional: str, topic: str) -> None:
    now = ("--max-transaction-timeout", "0")
    offsets = [hang(transactional, topic, 1, 900_001), hang(transactional, topic, 2, 900_002)]
    assert ask("find-hanging", "-t", topic) == [], "they may yet be ended by their coordinator, for all we know"
    found = ask("find-hanging", "-t", topic, *now)
    assert [(entry["partition"], entry["producer_id"], entry["start_offset"]) for entry in found] == [
        (1, 900_001, offsets[0]),
        (2, 900_002, offsets[1]),
    ]
    assert {(entry["producer_epoch"], entry["coordinator_epoch"], entry["transactional_id"]) for entry in found} == {
        (3, None, None)
    }
    assert {entry["partition"] for entry in ask("find-hanging", *now) if entry["topic"] == topic} == {1, 2}
    node = str(_node(transactional))
    assert ask("find-hanging", "--broker-id", node, "-t", topic, "-p", "1", *now)[0]["producer_id"] == 900_001
    code, shown = text("find-hanging", "-t", topic, *now)
    assert code == 0
    assert "transactions abort -t TOPIC" in shown

    code, shown = text("abort", "-t", topic, "-p", "1", "--start-offset", str(offsets[0]))
    assert (code, shown) == (0, f"aborted the transaction of producer 900001/3 in {topic}-1\n")
    by_producer = ("--producer-id", "900002", "--epoch", "3", "--coordinator-epoch", "-1")
    assert ask("abort", "-t", topic, "-p", "2", *by_producer) == {
        "topic": topic, "partition": 2, "start_offset": None, "producer_id": 900_002, "producer_epoch": 3,
        "coordinator_epoch": -1,
    }  # fmt: skip
    assert text("find-hanging", "-t", topic, *now) == (0, "no transaction hangs in 3 partitions\n")
    (producer,) = ask("describe-producers", "-t", topic, "-p", "1", "--broker-id", node)
    assert (producer["current_transaction_start_offset"], producer["coordinator_epoch"]) == (None, 0)
    with Admin(bootstrap_servers=transactional) as admin:
        ends = admin.list_offsets({(topic, 1): "latest"}, isolation="read_committed")
    assert ends[TopicPartition(topic, 1)].offset == offsets[0] + 2, "nobody stops in front of it any more"


def _node(bootstrap: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return min(admin.describe_cluster().brokers)


def test_what_a_coordinator_will_end_does_not_hang(ask: Ask, transactional: str, topic: str, begun: Any) -> None:
    hang(transactional, topic, 0, 900_003)
    found = ask("find-hanging", "-t", topic, "--max-transaction-timeout", "0")
    assert [(entry["partition"], entry["producer_id"]) for entry in found] == [(0, 900_003)]
    begun.abort_transaction(30)


def test_more_partitions_than_one_request_takes(transactional: str, topic: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(hanging_transactions, "PARTITIONS_AT_ONCE", 2)
    hang(transactional, topic, 2, 900_004)
    later_ms = time.time_ns() // 1_000_000 + 1000
    partitions = [TopicPartition(topic, index) for index in range(3)]
    with Admin(bootstrap_servers=transactional) as admin:
        found = hanging_transactions.find_hanging_transactions(admin, partitions, now_ms=later_ms, max_timeout_ms=0)
    assert [(each.partition, each.producer.producer_id) for each in found] == [(partitions[2], 900_004)]
