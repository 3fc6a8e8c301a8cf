"""Runs of declarative pipelines, with a process in place of Spark."""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("yaml")

from barnabas.pipeline import declarative_runner
from barnabas.pipeline.declarative_runner import event_text, run_declarative, run_logged, run_repeatedly
from barnabas.pipeline.display import Display
from barnabas.pipeline.errors import PipelineFailed
from barnabas.pipeline.project import create
from barnabas.types import TopicPartition


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "shop"
    create(directory, "declarative", "127.0.0.1:1")
    return directory


def test_when_the_next_run_begins() -> None:
    """When topics have grown since the last one began; after a pause if nobody knows."""

    class Over(Exception): ...

    at = TopicPartition("orders", 0)
    heard = [{at: 1}, {at: 1}, {at: 1}, {at: 2}, {at: 2}, {at: 3}, {}, {}]
    done: list[str] = []

    def ends() -> dict[TopicPartition, int]:
        if not heard:
            raise Over
        return heard.pop(0)

    with pytest.raises(Over):
        run_repeatedly(lambda: done.append("run"), ends, lambda: done.append("wait"), once=False)
    assert " ".join(done) == "run wait wait wait run wait run wait run wait"
    heard, done = [{at: 1}], []
    run_repeatedly(lambda: done.append("run"), ends, lambda: done.append("wait"), once=True)
    assert done == ["run"]


class Started:
    """What a session is started with, in place of one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings: dict[str, Any] = {}
        self.token: str | None = None
        self.client: dict[str, str] = {}
        service = SimpleNamespace(**{"MODULE$": SimpleNamespace(localPort=lambda: 4711)})
        self._spark = SimpleNamespace(
            _jvm=SimpleNamespace(**{"org.apache.spark.sql.connect.service.SparkConnectService$": service})
        )
        for name in ("require_spark", "require_pipelines"):
            monkeypatch.setattr(declarative_runner, name, lambda: None)
        monkeypatch.setattr(declarative_runner, "check_broker", lambda options: None)
        monkeypatch.setattr(declarative_runner, "java_process", lambda: None)
        monkeypatch.setattr(declarative_runner, "spark_process", self._spark_process)
        monkeypatch.setattr(declarative_runner, "run_logged", self._run_logged)

    @contextlib.contextmanager
    def _spark_process(self, _name: str, _log: Path, settings: dict[str, Any], _master: str | None) -> Iterator[Any]:
        self.settings, self.token = settings, os.environ[TOKEN]
        yield self._spark

    def _run_logged(self, _command: list[str], environment: dict[str, str], _log: Path, *_: Any, **__: Any) -> None:
        self.client = environment


TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def test_the_token_goes_by_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of a session stand on its command line, which everybody on the machine can read."""
    monkeypatch.setenv(TOKEN, "mine")
    started = Started(monkeypatch)
    run_declarative(project / "spark-pipeline.yml", None, Display(), once=True, every="1 s")
    assert started.token is not None
    assert len(started.token) >= 32
    assert started.client[TOKEN] == started.token
    assert started.settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert started.settings["spark.connect.grpc.binding.port"] == "0"
    assert not [name for name, value in started.settings.items() if started.token in f"{name} {value}"]
    assert not [name for name in started.settings if "token" in name]
    assert os.environ[TOKEN] == "mine", "as it was"


def test_a_proxy_is_not_asked_for_the_session(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    started = Started(monkeypatch)
    run_declarative(project / "spark-pipeline.yml", None, Display(), once=True, every="1 s")
    assert started.client["SPARK_REMOTE"] == "sc://localhost:4711"
    assert started.client["no_grpc_proxy"] == "localhost"


def test_a_session_that_ends_between_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    (project / "pipeline.toml").unlink()  # with no brokers to ask a run follows upon a pause
    Started(monkeypatch)
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as java:
        monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=java))
        with pytest.raises(PipelineFailed, match=r"Spark's process has ended, with exit code 3: see .*/spark.log"):
            run_declarative(project / "spark-pipeline.yml", None, Display(), once=False, every="1 h")


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("2026-11-22 10:05:02: Flow spark_catalog.default.bronze is RUNNING.\n", "bronze: running"),
        ("2026-11-22 10:05:02: Flow to_clean has COMPLETED.\n", "to_clean: completed"),
        ("2026-11-22 10:05:08: Flow 'spark_catalog.default.bronze' has FAILED.\n", "bronze: failed"),
        (
            "2026: Flow 'bronze' has FAILED more than 2 times and will not be restarted.",
            "bronze: failed more than 2 times and will not be restarted",
        ),
        ("2026: Flow 'gold' SKIPPED due to upstream failure(s).", "gold: skipped due to upstream failure(s)"),
        ("2026: Flow gold is QUEUED.", None),
        ("2026: Importing /x/transformations/layers.py...", None),
    ],
)
def test_events(line: str, event: str | None) -> None:
    assert event_text(line) == event


def command(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_is_shown_and_what_is_logged(tmp_path: Path) -> None:
    shown: list[str] = []
    run_logged(command("print('x: Loading'); print('x: Flow a is RUNNING.')"), {}, tmp_path / "log", shown.append)
    assert shown == ["a: running"]
    assert (tmp_path / "log").read_text().splitlines() == ["x: Loading", "x: Flow a is RUNNING."]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "  File x\nbarnabas.errors.UsageError: topic 'a' does not exist\n SQLSTATE: 3\npyspark.X: [STREAM_FAILED]",
            "topic 'a' does not exist",
        ),
        (
            "Traceback\nE.FirstError: 1\nTraceback\n  File\npyspark.errors.PySparkException: [NO_TABLE] none\n",
            r"pyspark.errors.PySparkException: [NO_TABLE] none",
        ),
    ],
)
def test_what_is_told_of_a_failure(tmp_path: Path, said: str, reason: str) -> None:
    with pytest.raises(PipelineFailed) as failed:
        run_logged(command(f"print({said!r}); raise SystemExit(1)"), {}, tmp_path / "log", lambda _: None)
    assert str(failed.value) == f"the pipeline has failed: {reason} (all of it: {tmp_path / 'log'})"


def test_a_session_that_ends_in_a_run(tmp_path: Path) -> None:
    """Its client would ask for it for minutes."""
    code = "import time; print('Flow a is RUNNING.', flush=True); time.sleep(600)"
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as java,
        pytest.raises(PipelineFailed, match=r"Spark's process has ended, with exit code -9"),
    ):
        run_logged(command(code), {}, tmp_path / "log", lambda _: java.kill(), session=java)


def test_an_interrupt_ends_the_process(tmp_path: Path) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    code = "import time; print('Flow a is RUNNING.', flush=True); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        run_logged(command(code), {}, tmp_path / "log", interrupt)  # and waits for its end


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it stays")
def test_a_kill_ends_the_process(tmp_path: Path) -> None:
    """Whose session is gone: it would wait for that."""
    lock = tmp_path / "lock"
    code = (
        f"import fcntl, time; file = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('Flow a is RUNNING.', flush=True); time.sleep(60)"
    )
    runner = (
        "import sys; from pathlib import Path; from barnabas.pipeline.declarative_runner import run_logged;"
        f"run_logged([sys.executable, '-c', {code!r}], {{}}, Path(sys.argv[1]), lambda line: print(line, flush=True))"
    )
    command = [sys.executable, "-c", runner, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "a: running\n"
        parent.kill()
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits for its end
