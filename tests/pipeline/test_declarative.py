"""Declarative pipelines without Spark: where their checkpoints are, when the next run begins, what is told of one."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("yaml")

import barnabas
from barnabas.cli.main import run
from barnabas.errors import UsageError
from barnabas.pipeline import declarative_runner
from barnabas.pipeline.checkpoint import find_checkpoints
from barnabas.pipeline.declarative_runner import event_text, run_declarative, run_logged, run_repeatedly
from barnabas.pipeline.declarative_spec import find_spec_file, flow_checkpoints, load_spec, newest, settings_of
from barnabas.pipeline.display import Display
from barnabas.pipeline.errors import PipelineFailed
from barnabas.pipeline.project import create
from barnabas.pipeline.repair import backup_of
from barnabas.pipeline.runner import check_checkpoints, remember_queries
from barnabas.testing import Broker
from barnabas.types import TopicPartition

from .checkpoints import write_checkpoint

BRONZE = "storage/_checkpoints/spark_catalog/default/bronze/bronze"
SILVER = "storage/_checkpoints/to_silver/silver_topic"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "shop"
    create(directory, "declarative", "127.0.0.1:1")
    return directory


def test_the_spec(project: Path) -> None:
    file = find_spec_file(project)
    assert file is not None
    spec = load_spec(file)
    assert (spec.name, spec.checkpoints) == ("shop", project / "storage" / "_checkpoints")
    assert settings_of(spec)["silver"] == "orders-clean"
    (project / "pipeline.toml").unlink()
    assert settings_of(spec) == {"name": "shop", "kafka": {}, "spark": {}}, "as spark-pipelines init makes it"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is no YAML"),
        ("- a", "must have the fields name, storage and libraries"),
        ("name: a", "storage must be there, and a text"),
        ("name: 3\nstorage: /x", "name must be there, and a text"),
    ],
)
def test_a_spec_that_is_none(project: Path, text: str, reason: str) -> None:
    file = project / "spark-pipeline.yml"
    file.write_text(text)
    with pytest.raises(UsageError, match=reason):
        load_spec(file)


def test_storage_elsewhere(project: Path) -> None:
    file = project / "spark-pipeline.yml"
    file.write_text("name: a\nstorage: s3a://bucket/it\n")
    with pytest.raises(UsageError, match=r"s3a://bucket/it cannot .* `pipeline run` needs a storage on this machine"):
        find_checkpoints(project)


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "a\nb"])
def test_storage_that_spark_writes_elsewhere(project: Path, tmp_path: Path, name: str) -> None:
    """Checkpoints would be looked for where none are, and a query that has lost its own one would not be noticed."""
    file = project / "spark-pipeline.yml"
    for storage in (f"file:///x/{name}/storage", f"/x/{name}/storage"):
        file.write_text(f"name: a\nstorage: {json.dumps(storage)}\n")
        with pytest.raises(UsageError, match="Spark may keep the storage"):
            find_checkpoints(project)
    with pytest.raises(UsageError, match="Spark may keep the storage"):
        create(tmp_path / name / "shop", "declarative", "127.0.0.1:1")
    assert not (tmp_path / name).exists()
    create(tmp_path / name, "copy", "127.0.0.1:1")  # queries are told where their checkpoints are


def test_storage_with_letters_of_all_kinds(tmp_path: Path) -> None:
    directory = tmp_path / "März_2024-v1.0+a=b,c~d@e"
    create(directory, "declarative", "127.0.0.1:1")
    assert load_spec(directory / "spark-pipeline.yml").checkpoints == directory / "storage" / "_checkpoints"


def test_where_checkpoints_are(project: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no checkpoint in .*storage/_checkpoints\): the pipeline was never"):
        find_checkpoints(project)
    old, bronze = (write_checkpoint(project / BRONZE / number, commits=0) for number in ("9", "10"))
    silver = write_checkpoint(project / SILVER / "0", commits=0)
    write_checkpoint(backup_of(silver), commits=0)
    assert backup_of(silver).parent == silver.parent.parent, "Spark would take it for the newest one of the flow"
    root = project / "storage" / "_checkpoints"
    assert flow_checkpoints(root) == [old, bronze, silver], "numbers, not texts"
    assert newest(flow_checkpoints(root)) == find_checkpoints(project) == find_checkpoints(root) == [bronze, silver]
    assert find_checkpoints(silver) == [silver]


def test_status_and_lag(project: Path, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ids = {"orders": str(admin.describe_topics("orders")["orders"].topic_id)}
    write_checkpoint(project / BRONZE / "0", {"0": 5, "1": 5}, {"0": 9, "1": 9}, commits=2, ids=ids)
    table = write_checkpoint(project / SILVER / "0", {"0": 1}, commits=1)
    (table / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1}\n{"logOffset":0}')
    where = [str(project), "-b", broker.bootstrap_servers]
    assert run(["pipeline", "status", *where, "--json"]) == 0
    rows = [(row["query"], row["batch"], row["lag"]) for row in json.loads(capsys.readouterr().out)]
    assert rows == [("bronze", 1, 12), ("silver_topic", 0, None)], "the second reads a table"
    assert run(["pipeline", "lag", *where]) == 0
    assert capsys.readouterr().out.endswith("lag 12\n")
    assert run(["pipeline", "repair-checkpoint", *where]) == 0


def test_checkpoints_that_are_gone(project: Path) -> None:
    root = project / "storage" / "_checkpoints"
    bronze = write_checkpoint(project / BRONZE / "0", {"0": 1}, commits=1)
    remember_queries(project, [bronze])
    refreshed = write_checkpoint(project / BRONZE / "1", {"0": 1}, commits=1)
    (refreshed / "metadata").write_text('{"id":"33333333-3333-3333-3333-333333333333"}')
    check_checkpoints(project, root, flow_checkpoints(root), anew=False)  # a full refresh leaves the old one
    with pytest.raises(UsageError, match=r"is not the one that query bronze had"):
        check_checkpoints(project, root, [refreshed], anew=False)
    check_checkpoints(project, root, [refreshed], anew=True)
    (refreshed / "offsets" / "0").write_text("v1")
    with pytest.raises(PipelineFailed, match=r"bronze/1/offsets/0 cannot be read"):
        check_checkpoints(project, root, flow_checkpoints(root), anew=False)


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
