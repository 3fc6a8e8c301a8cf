"""Running a declarative pipeline: a session that serves Spark Connect, and `spark-pipelines run` against it.

A run of Spark's takes what is there and ends. Without `--once` the session stays, and the next run begins when there is
more in the topics.
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
from barnabas.cli.child_broker import end_with_parent
from barnabas.cli.output import CommandFailed
from barnabas.errors import BarnabasError
from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.declarative import (
    Spec,
    flow_checkpoints,
    load_spec,
    need_pipelines,
    newest,
    settings_of,
)
from barnabas.pipeline.project import alone
from barnabas.pipeline.queries import told
from barnabas.pipeline.running import check, failures_told, remember
from barnabas.pipeline.spark_process import (
    end_process,
    java_process,
    need_spark,
    pause,
    session_ended,
    spark_process,
)
from barnabas.pipeline.tending import admin_of, check_broker, ends_of
from barnabas.spark.option_table import parse_duration_ms
from barnabas.types import TopicPartition

__all__ = ["catalog_settings", "event_text", "rounds", "run_declarative", "run_logged"]

_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_SERVER: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
_EVENT: Final = re.compile(r"Flow '?(?:\w+\.\w+\.)?([\w.]+)'? (?:is |has )?(RUNNING|COMPLETED|FAILED.*|SKIPPED.*)$")
_LOOK_S: Final = 1.0
_LINES_MAX: Final = 400
"""Of a run that has failed, in which the reason is looked for."""

Ends = Mapping[TopicPartition, int]


def run_declarative(
    file: Path,
    master: str | None,
    *,
    once: bool,
    every: str,
    anew: bool = False,
    show: Callable[[str], None] = print,
) -> list[str]:
    """Until all that is there is through (`once`), or for ever. Gives the names of the flows. `file`: the spec's;
    `show` is given a line for each thing that a flow does."""
    need_spark()
    need_pipelines()
    pause_s = parse_duration_ms(every, "--every", bare=False) / 1000
    spec, directory = load_spec(file), file.parent
    settings = settings_of(spec)
    root = spec.checkpoints
    check(directory, root, flow_checkpoints(root), anew=anew)
    if settings["kafka"]:
        check_broker(settings["kafka"])
    log = directory / "spark.log"
    started = {**catalog_settings(directory), **settings["spark"], **_SERVER}
    try:
        with (
            failures_told(log),
            alone(directory),
            _secret_token(),
            spark_process(settings["name"], log, started, master) as spark,
            admin_of(settings["kafka"]) if settings["kafka"] else contextlib.nullcontext() as admin,
        ):
            environment = _client_environment(spark)
            command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(file.resolve())]
            rounds(
                lambda: run_logged(command, environment, log, show=show, session=java_process()),
                lambda: {} if admin is None else _ends(admin, spec),
                lambda: pause(pause_s, log),
                once=once,
            )
    finally:
        remember(directory, newest(flow_checkpoints(root)))
    return [read_checkpoint(path).name for path in newest(flow_checkpoints(root))]


def rounds(run: Callable[[], None], ends: Callable[[], Ends], wait: Callable[[], None], *, once: bool) -> None:
    """One run after the other: the next one when topics have grown since the last one began, or, where that is not
    known, after a pause."""
    while True:
        before = ends()
        run()
        if once:
            return
        wait()
        while before and ends() == before:
            wait()


def _ends(admin: Admin, spec: Spec) -> Ends:
    """Of the topics that flows read. Nothing while the brokers cannot be asked: the run says what that means for it."""
    found: dict[TopicPartition, int] = {}
    for path in newest(flow_checkpoints(spec.checkpoints)):
        try:
            found |= ends_of(admin, read_checkpoint(path))
        except BarnabasError:
            return {}
    return found


def run_logged(
    command: list[str],
    environment: Mapping[str, str],
    log: Path,
    show: Callable[[str], None] = print,
    *,
    session: "subprocess.Popen[bytes] | None" = None,
) -> None:
    """Run it with all that it says in the log, and what flows do shown. Raises CommandFailed with its reason if it
    fails. Whatever ends this, or the process of the session, ends the process, too."""
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
            start_new_session=True,  # a Ctrl-C is ours
            preexec_fn=end_with_parent,  # it would ask the session that is gone for ever
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
        raise CommandFailed(f"the pipeline has failed: {told(''.join(last))} (all of it: {log})")


def _end_with(session: "subprocess.Popen[bytes]", process: "subprocess.Popen[str]") -> None:
    """The client of a session that is gone asks for it again and again."""
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            session.wait(_LOOK_S)
            end_process(process)


@contextlib.contextmanager
def _secret_token() -> Iterator[None]:
    """Nobody but who has it may run code in our session. Environments can be read by their owner alone, command lines
    by everybody."""
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
    """What a flow does now, if that is what a line says."""
    found = _EVENT.search(line.rstrip().removesuffix("."))
    if found is None:
        return None
    name, what = found.groups()
    state, _, more = what.partition(" ")
    return f"{name}: {state.lower()}{' ' + more if more else ''}"


def catalog_settings(directory: Path) -> dict[str, Any]:
    """Tables in the project's directory, and a catalog that a second run finds them in: Spark's default one is in
    memory, and the second run would fail on the first one's files."""
    home = directory.resolve()
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={os.devnull}",
    }
