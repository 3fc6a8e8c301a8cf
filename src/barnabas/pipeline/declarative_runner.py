"""Runs a declarative pipeline: a session that serves Spark Connect, and `spark-pipelines run` as its client.

A run of spark-pipelines reads the records that are there and ends. Without `--once` the session stays, and the next run
begins when topics have grown.
"""

import contextlib
import os
import re
import secrets
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas import Admin
from barnabas.errors import BarnabasError
from barnabas.pipeline.brokers import check_broker, end_offsets, open_admin
from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.declarative_spec import Spec, flow_checkpoints, load_spec, newest, require_pipelines, settings_of
from barnabas.pipeline.display import Display
from barnabas.pipeline.errors import PipelineFailed, error_text, spark_failures
from barnabas.pipeline.project import project_lock
from barnabas.pipeline.runner import check_checkpoints, remember_queries
from barnabas.pipeline.spark_process import (
    end_process,
    end_with_parent,
    java_process,
    pause,
    require_spark,
    session_ended,
    spark_process,
)
from barnabas.spark.option_table import parse_duration_ms
from barnabas.types import TopicPartition

__all__ = ["catalog_settings", "event_text", "run_declarative", "run_logged", "run_repeatedly"]

_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_SERVER: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
_EVENT: Final = re.compile(r"Flow '?(?:\w+\.\w+\.)?([\w.]+)'? (?:is |has )?(RUNNING|COMPLETED|FAILED.*|SKIPPED.*)$")
_POLL_S: Final = 1.0
_LINES_MAX: Final = 400
"""The number of last lines of a failed run in which the reason is searched."""

EndOffsets = Mapping[TopicPartition, int]


def run_declarative(
    file: Path, master: str | None, display: Display, *, once: bool, every: str, anew: bool = False
) -> list[str]:
    """Runs the pipeline of a spec file until all records that are there are read (`once`), or for ever, and displays a
    line for each event of a flow. Returns the names of the flows.

    `anew`: checkpoints of flows that have run before may be missing.
    """
    require_spark()
    require_pipelines()
    pause_s = parse_duration_ms(every, "--every", bare=False) / 1000
    spec, directory = load_spec(file), file.parent
    settings = settings_of(spec)
    root = spec.checkpoints
    check_checkpoints(directory, root, flow_checkpoints(root), anew=anew)
    if settings["kafka"]:
        check_broker(settings["kafka"])
    log = directory / "spark.log"
    started = {**catalog_settings(directory), **settings["spark"], **_SERVER}
    try:
        with (
            spark_failures(log),
            project_lock(directory),
            _secret_token(),
            spark_process(settings["name"], log, started, master) as spark,
            open_admin(settings["kafka"]) if settings["kafka"] else contextlib.nullcontext() as admin,
        ):
            environment = _client_environment(spark)
            command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(file.resolve())]
            run_repeatedly(
                lambda: run_logged(command, environment, log, display.say, session=java_process()),
                lambda: {} if admin is None else _end_offsets(admin, spec),
                lambda: pause(pause_s, log),
                once=once,
            )
    finally:
        remember_queries(directory, newest(flow_checkpoints(root)))
    return [read_checkpoint(path).name for path in newest(flow_checkpoints(root))]


def run_repeatedly(
    run: Callable[[], None], end_offsets: Callable[[], EndOffsets], wait: Callable[[], None], *, once: bool
) -> None:
    """Calls `run` again whenever topics have grown since the last run began; where that is not known, after a pause."""
    while True:
        before = end_offsets()
        run()
        if once:
            return
        wait()
        while before and end_offsets() == before:
            wait()


def _end_offsets(admin: Admin, spec: Spec) -> EndOffsets:
    """Returns the end offsets of the topics that flows read; nothing while the brokers do not answer, which the run
    reports itself."""
    found: dict[TopicPartition, int] = {}
    for path in newest(flow_checkpoints(spec.checkpoints)):
        try:
            found |= end_offsets(admin, read_checkpoint(path))
        except BarnabasError:
            return {}
    return found


def run_logged(
    command: list[str],
    environment: Mapping[str, str],
    log: Path,
    show: Callable[[str], None],
    *,
    session: "subprocess.Popen[bytes] | None" = None,
) -> None:
    """Runs a command with its output in the log, and shows the events of flows. The process ends with this call, and
    with the process of the session. Raises PipelineFailed with the reason if the command fails."""
    last: deque[str] = deque(maxlen=_LINES_MAX)
    with (
        log.open("a", buffering=1, encoding="utf-8") as file,
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for this process alone
            preexec_fn=end_with_parent,  # it would try to reach the lost session for ever
        ) as process,
    ):
        if session is not None:
            threading.Thread(target=_end_with, args=(session, process), daemon=True).start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                last.append(line)
                event = event_text(line)
                if event is not None:
                    show(event)
        except BaseException:
            end_process(process)
            raise
    if session is not None and session.poll() is not None:
        raise session_ended(session.returncode, log)
    if process.returncode:
        raise PipelineFailed(f"the pipeline has failed: {error_text(''.join(last))} (all of it: {log})")


def _end_with(session: "subprocess.Popen[bytes]", process: "subprocess.Popen[str]") -> None:
    """Ends the process when the session ends: a client would try to reach it again and again."""
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            session.wait(_POLL_S)
            end_process(process)


@contextlib.contextmanager
def _secret_token() -> Iterator[None]:
    """Sets the token that a client needs to run code in our session. It is in the environment, which only its owner can
    read; command lines can be read by everybody."""
    before = os.environ.get(_TOKEN)
    os.environ[_TOKEN] = secrets.token_hex(16)
    try:
        yield
    finally:
        del os.environ[_TOKEN]
        if before is not None:
            os.environ[_TOKEN] = before


def _client_environment(spark: Any) -> dict[str, str]:
    server = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(server, "MODULE$").localPort()
    return {
        **os.environ,
        "SPARK_REMOTE": f"sc://localhost:{port}",  # by any other name the client wants TLS for its token
        "no_grpc_proxy": "localhost",  # whatever http_proxy says
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }


def event_text(line: str) -> str | None:
    """Returns the event of a flow that a line of output reports, if any."""
    found = _EVENT.search(line.rstrip().removesuffix("."))
    if found is None:
        return None
    name, what = found.groups()
    state, _, more = what.partition(" ")
    return f"{name}: {state.lower()}{' ' + more if more else ''}"


def catalog_settings(directory: Path) -> dict[str, Any]:
    """Returns settings for tables in the project's directory and a catalog on disk. Spark's default catalog is in
    memory: a second run would fail on the first one's files."""
    home = directory.resolve()
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={os.devnull}",
    }
