"""`barnabas cluster history`."""

import json
import time
from typing import Any

import pytest

from barnabas import Admin
from barnabas.cli.cluster.leader_history import chosen_changes
from barnabas.client.admin.cluster import LeaderChange
from barnabas.testing import Cluster
from cli.cluster.three_brokers import bootstrap as bootstrap
from cli.cluster.three_brokers import kafka as kafka
from cli.cluster.three_brokers import shared_cluster as shared_cluster
from cli.conftest import Run

NO_ADMIN: Any = None


def test_every_move_of_a_leader_has_its_reason(kafka: Cluster, in_process: Run) -> None:
    one, two, three = sorted(kafka.node_ids, key=lambda node_id: node_id == kafka.controller)
    kafka.create_topic("t", assignments={0: [one, two, three]})
    began_ms = time.time_ns() // 1_000_000
    kafka.kill(one)
    assert kafka.leader("t") == two
    kafka.start(one)
    kafka.wait_in_sync()
    kafka.stop(two)
    kafka.start(two)
    kafka.wait_in_sync()
    before = kafka.leader("t")
    kafka.move_leader("t", 0, two if before != two else one)
    rows = json.loads(in_process("cluster", "history", "t", "--json").stdout)
    moves = [(row["from_leader"], row["to_leader"], row["leader_epoch"], row["reason"]) for row in rows]
    assert moves[0] == (one, two, 1, f"broker {one}: its process has ended")
    assert (two, before, f"broker {two}: it stops") in [(a, b, why) for a, b, _, why in moves]
    assert moves[-1][3] == "elected by an administrator"
    assert [epoch for *_, epoch, _ in moves] == list(range(1, len(moves) + 1))
    assert all(began_ms <= row["time_ms"] <= time.time_ns() // 1_000_000 for row in rows)
    assert all(0 <= row["took_ms"] < 60_000 for row in rows)
    text = in_process("cluster", "history", "t:0", "-n", "1").stdout.splitlines()
    assert len(text) == 2
    assert text[1].endswith("  elected by an administrator")
    assert in_process("cluster", "history", "^t$").stdout == in_process("cluster", "history", "t").stdout
    kafka.create_topic("quiet")
    assert in_process("cluster", "history", "quiet").stdout == "no leader of quiet has moved\n"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("nope", "topic 'nope' does not exist"),
        ("t:9", "topic 't' has partitions 0 to 0, not 9"),
        ("^nope", "no topic matches ^nope"),
    ],
)
def test_what_is_not_there_has_no_history(kafka: Cluster, in_process: Run, asked: str, told: str) -> None:
    kafka.create_topic("t")
    done = in_process("cluster", "history", asked)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr


def test_a_deleted_topic_keeps_its_history(kafka: Cluster, in_process: Run) -> None:
    kafka.create_topic("gone", assignments={0: [1, 2, 3]})
    kafka.move_leader("gone", 0, 2)
    kafka.admin.delete_topics("gone")
    assert "elected by an administrator" in in_process("cluster", "history", "gone").stdout


def test_every_broker_tells_it_and_only_those_who_ask_hear_it(kafka: Cluster) -> None:
    kafka.create_topic("t", assignments={0: [1, 2, 3]})
    kafka.move_leader("t", 0, 2)
    told = []
    for node_id in kafka.node_ids:
        with Admin(bootstrap_servers=kafka.broker(node_id).bootstrap_servers) as admin:
            told.append(admin.leader_changes(1))
    assert told[0] is not None
    assert told == [told[0]] * 3
    assert (told[0][0].topic, told[0][0].to_leader) == ("t", 2)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [([], [0, 1, 2]), (["a"], [0, 2]), (["a:3-4"], [2]), (["^b", "a:0"], [0, 1]), (["^(a|b)$"], [0, 1, 2])],
)
def test_changes_are_chosen_by_topic_and_partition(asked: list[str], expected: list[int]) -> None:
    places = [("a", 0), ("b", 0), ("a", 3)]
    changes = [LeaderChange(number, *place, 1, 2, 1, "x", 0) for number, place in enumerate(places)]
    assert [change.time_ms for change in chosen_changes(NO_ADMIN, changes, asked)] == expected
