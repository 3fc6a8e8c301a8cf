"""Short runs of the crash tests on every change; `make test-faults` and `-transactions` have hundreds of rounds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="the crash tests' clients are confluent-kafka's")

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> None:
    command = [sys.executable, str(Path(__file__).parent), *arguments]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_acknowledged_is_lost_or_doubled_over_five_kills() -> None:
    run("produce", "--rounds", "5", "--seed", "20")


def test_every_record_is_copied_exactly_once_over_five_rounds_of_kills() -> None:
    run("transactions", "--rounds", "5", "--seed", "20")


def test_the_last_record_of_each_key_stands_over_five_kills() -> None:
    run("compaction", "--rounds", "5", "--seed", "20")


def test_our_own_producer_loses_and_doubles_nothing_over_five_rounds_of_kills() -> None:
    run("producer", "--rounds", "5", "--seed", "20")


def test_our_own_consumers_keep_their_promises_over_four_rounds_of_kills() -> None:
    run("consumer", "--rounds", "4", "--seed", "20")


def test_members_come_and_go_and_none_is_stuck() -> None:
    run("members", "--rounds", "1", "--seed", "20")


def test_the_clients_of_a_cluster_see_no_anomaly_while_its_brokers_are_killed() -> None:
    run("cluster", "--rounds", "1", "--seconds", "15", "--seed", "20", "--deeds", "kill,terminate,freeze,wipe")
