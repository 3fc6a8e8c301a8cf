"""`barnabas pipeline run` as its users call it: what it shows, and what it says when something is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.pipeline.project import create
from barnabas.testing import Broker

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark


def run(directory: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(directory), "--once", "--master", "local[2]"]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_a_run_and_what_keeps_it_from_running(broker: Broker, topic: str, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    create(directory, "copy", broker.bootstrap_servers)
    settings = directory / "pipeline.toml"
    settings.write_text(settings.read_text().replace('"orders', f'"{topic}'))
    done = run(directory)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), "one line"
    assert f"query copy has failed: option subscribe: topic '{topic}' does not exist" in done.stderr

    broker.create_topic(topic)
    broker.create_topic(f"{topic}-copy")
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number)
    done = run(directory)
    assert done.returncode == 0, done.stderr
    assert "copy: batch 0, rows 20" in done.stdout
    assert done.stdout.endswith("done: copy\n")
    assert len(broker.records(f"{topic}-copy")) == 20

    offsets = directory / "checkpoints" / "copy" / "offsets" / "0"
    offsets.write_text(offsets.read_text()[:-20])
    (offsets.parent / ".0.crc").unlink()
    done = run(directory)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "barnabas pipeline repair-checkpoint" in done.stderr


def test_a_wrong_option(broker: Broker, tmp_path: Path) -> None:
    create(tmp_path, "copy", broker.bootstrap_servers)
    settings = tmp_path / "pipeline.toml"
    settings.write_text(settings.read_text().replace("[kafka]", '[kafka]\n"maxOffsetPerTrigger" = "5"'))
    done = run(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "option maxoffsetpertrigger does not exist" in done.stderr
    assert "maxOffsetsPerTrigger" in done.stderr, "the one that was meant"
