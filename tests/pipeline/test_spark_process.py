"""A Spark session for one block: what is left when it is interrupted. No JVM."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkRuntimeError  # noqa: E402

from barnabas.cli.main import run  # noqa: E402
from barnabas.pipeline import declarative_runner  # noqa: E402
from barnabas.pipeline.errors import PipelineFailed  # noqa: E402
from barnabas.pipeline.project import create  # noqa: E402
from barnabas.pipeline.spark_process import pause, spark_process  # noqa: E402
from barnabas.spark import sessions  # noqa: E402


class FakeJava:
    """As a process that ends when it is told to."""

    is_ended = False

    def terminate(self) -> None:
        self.is_ended = True

    def wait(self, timeout: float | None = None) -> int:
        return 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_spark_starts_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    java = FakeJava()
    before = signal.getsignal(number)

    def interrupted(*_: Any, **__: Any) -> object:
        os.kill(os.getpid(), number)
        monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=java))
        return object()

    monkeypatch.setattr(sessions, "session", interrupted)
    with pytest.raises(KeyboardInterrupt), spark_process("test", tmp_path / "log", {}, None):
        pytest.fail("the block was entered")
    assert java.is_ended
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_fails_by_a_signal_tells_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The signal may go to all processes of a terminal or container, so that the connection to the JVM breaks."""

    def interrupted(*_: Any, **__: Any) -> object:
        os.kill(os.getpid(), number)
        raise ConnectionError("the JVM has ended")

    monkeypatch.setattr(sessions, "session", interrupted)
    with pytest.raises(KeyboardInterrupt), spark_process("test", tmp_path / "log", {}, None):
        pytest.fail("the block was entered")


def test_delta_for_another_spark_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path / "mine", "merge", "127.0.0.1:1")
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    assert run(["pipeline", "run", str(tmp_path / "mine")]) == 2
    told = capsys.readouterr().err
    assert "names Delta for Spark 4.2, but pyspark is 4.3.0: pip install 'barnabas[delta]'" in told


def test_a_port_for_metrics_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path / "mine", "copy", "127.0.0.1:1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["pipeline", "run", str(tmp_path / "mine"), "--metrics-port", str(port)]) == 2
    assert f"--metrics-port {port}: Address already in use; choose another one" in capsys.readouterr().err


@pytest.mark.parametrize("template", ["copy", "declarative"])
def test_no_broker_is_told_before_spark_starts(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if template == "declarative":
        pytest.importorskip("yaml")
    directory = tmp_path / "mine"
    create(directory, template, "127.0.0.1:1")
    settings = directory / "pipeline.toml"
    settings.write_text(settings.read_text().replace("[kafka]", '[kafka]\n"kafka.bootstrap.timeout.ms" = 0'))
    monkeypatch.setattr(sessions, "session", lambda *_, **__: pytest.fail("a session was started"))
    monkeypatch.setattr(declarative_runner, "require_pipelines", lambda: None)
    assert run(["pipeline", "run", str(directory)]) == 1
    said = capsys.readouterr().err
    assert "no broker reachable: 127.0.0.1:1: tcp: connection refused" in said
    assert "bootstrap.servers of [kafka] in pipeline.toml" in said


def test_metrics_of_a_declarative_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create(tmp_path / "mine", "declarative", "127.0.0.1:1")
    assert run(["pipeline", "run", str(tmp_path / "mine"), "--metrics-port", "0"]) == 2
    assert "flows of a declarative pipeline report to Spark alone" in capsys.readouterr().err


def test_a_pause_beside_a_session_that_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=java))
        pause(0.01, tmp_path / "log")
        java.kill()
        with pytest.raises(PipelineFailed, match=r"has ended, with exit code -9: see .*/log"):
            pause(3600, tmp_path / "log")
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    pause(0.01, tmp_path / "log")  # one that another process has started


def test_why_spark_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the JVM says of it, and not what was said before."""
    log = tmp_path / "log"
    log.write_text("org.x.OldException: long ago\n")

    def session(*_: Any, **__: Any) -> object:
        os.write(2, b'Exception in thread "main" org.x.SparkException: Master must start with spark\n\tat x\n')
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(sessions, "session", session)
    with (
        pytest.raises(PipelineFailed, match=r"^Spark does not start: org.x.SparkException: Master must start"),
        spark_process("test", log, {}, "nonsense"),
    ):
        pytest.fail("the block was entered")
