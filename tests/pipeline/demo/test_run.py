"""The demo of pipelines."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.errors import UsageError
from barnabas.pipeline.demo.flights import read_flights
from barnabas.pipeline.demo.replay import Replay
from barnabas.pipeline.demo.run import PipelineDemo
from barnabas.pipeline.display import Display
from barnabas.testing import Broker

COMMAND = (sys.executable, "-m", "barnabas", "pipeline", "demo", "--seconds", "0")


def needs_spark() -> None:
    for name in ("pyspark", "pandas", "matplotlib"):
        pytest.importorskip(name)


def run(directory: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "--json", "--data-dir", str(directory), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_thousand_flights_and_some_more(tmp_path: Path) -> None:
    needs_spark()
    first = run(tmp_path, "--limit", "1000")
    assert (first["run"], first["replayed"], first["archived"], first["problems"]) == ("clean", 1000, 1000, [])
    assert first["carriers_and_hours"] > 100
    picture, page = map(Path, first["files"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "every figure equals that of pandas" in page.read_text()
    assert "http" not in page.read_text(), "the page needs no network"
    more = run(tmp_path, "--limit", "1100")
    assert (more["run"], more["replayed"], more["archived"], more["problems"]) == ("continued", 100, 1100, [])


@pytest.mark.spark
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    needs_spark()
    mark = f"PIPELINE_TEST_RUN={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    command = [*COMMAND, "--limit", "5000", "--seconds", "600", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, name: value}) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "archive: batch" in line:  # broker, JVM and workers are there
                    break
            assert len(marked(mark)) > 4
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    deadline = began + 80
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def marked(mark: str) -> list[str]:
    """The processes that inherited it."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (directory / "environ").read_bytes().split(b"\0"):
                found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [command for command in found if command]


@pytest.fixture
def few_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of them takes seconds."""
    flights = read_flights(3000)
    monkeypatch.setattr("barnabas.pipeline.demo.replay.read_flights", lambda: flights)


@pytest.mark.usefixtures("few_flights")
def test_topics_and_checkpoints_belong_together(tmp_path: Path) -> None:
    with Broker() as broker, barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        demo = PipelineDemo(settings, tmp_path / "a", 10, 0, None, Display())
        app_id, done = demo.prepare(admin)
        assert (demo.prepare(admin), done) == ((app_id, 0), 0)
        replay = Replay({**settings}, 10, 0, 0)
        replay.start()
        replay.go_live()
        broker.wait_for(lambda: replay.is_over, what="the replay")
        elsewhere = PipelineDemo(
            {"bootstrap.servers": broker.bootstrap_servers}, tmp_path / "b", 10, 0, None, Display()
        )
        with pytest.raises(
            UsageError, match=r"10 flights of an earlier run and its checkpoints are not in .*b; .*--clean"
        ):
            elsewhere.prepare(admin)
        elsewhere.delete_all(admin)
        with pytest.raises(
            UsageError, match=r"checkpoints in .*a are of topics that are gone; start over with --clean"
        ):
            demo.prepare(admin)
        demo.delete_all(admin)
        other, done = demo.prepare(admin)
        assert (other != app_id, done) == (True, 0), "what was written under the old name counts no longer"
