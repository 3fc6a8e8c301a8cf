"""A declarative pipeline as its users run it: tables, a topic again, dead letters; each row once, also after a kill."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.pipeline.project import create
from barnabas.testing import Broker

from .test_pipelines import committed

pytest.importorskip("pyspark")
pytest.importorskip("yaml")
parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.spark


def begin(directory: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(directory), "--once", "--master", "local[2]"]
    return subprocess.Popen(
        command,
        env={**os.environ, "http_proxy": "http://127.0.0.1:1"},  # no way to the session
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(directory: Path) -> str:
    with begin(directory) as process:
        said, error = process.communicate(timeout=400)
    assert process.returncode == 0, error
    return said


def kill_while(directory: Path, event: str) -> None:
    """All of it, JVM included."""
    with begin(directory) as process:
        assert process.stdout is not None
        assert any(line.startswith(event) for line in process.stdout), "it has ended"
        os.killpg(process.pid, signal.SIGKILL)


def send(broker: Broker, topic: str, numbers: range) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            value = {"id": number, "total": 1.5, "customer": "ab"[number % 2]}
            producer.send(topic, b"{bad" if number % 10 == 9 else json.dumps(value).encode(), partition=number % 2)


def test_a_run_a_kill_and_another_run(broker: Broker, topic: str, tmp_path: Path) -> None:
    directory = tmp_path / "shop"
    create(directory, "declarative", broker.bootstrap_servers)
    settings = directory / "pipeline.toml"
    settings.write_text(settings.read_text().replace('"orders', f'"{topic}'))
    for name in (topic, f"{topic}-clean", f"{topic}-dead"):
        broker.create_topic(name, 2)
    send(broker, topic, range(100))
    said = run(directory)
    assert "silver_topic: completed" in said
    assert said.endswith("done: bronze, silver, dead_letters, silver_topic\n")
    check(broker, topic, directory, 100)

    send(broker, topic, range(100, 200))
    kill_while(directory, "silver_topic: running")
    send(broker, topic, range(200, 300))
    run(directory)
    check(broker, topic, directory, 300)


def check(broker: Broker, topic: str, directory: Path, count: int) -> None:
    """All that was sent is everywhere, after one run: tables are in order."""
    good = [number for number in range(count) if number % 10 != 9]
    ids = Counter(json.loads(record.value)["id"] for record in committed(broker, f"{topic}-clean"))
    assert ids == Counter(good)
    dead: list[Any] = committed(broker, f"{topic}-dead")
    assert len(dead) == count // 10
    assert {(record.value, dict(record.headers)["why"]) for record in dead} == {
        (b"{bad", b"it is no JSON of the right form")
    }
    gold = parquet.read_table(directory / "warehouse" / "gold").to_pylist()
    assert {row["customer"]: row["orders"] for row in gold} == Counter("ab"[number % 2] for number in good)
