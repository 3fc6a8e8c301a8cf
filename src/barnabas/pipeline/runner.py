"""Runs a project: starts a Spark session and the project's queries, and shows their progress."""

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas import Admin
from barnabas.errors import BarnabasError, UsageError
from barnabas.pipeline.brokers import check_broker, open_admin
from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.diagnosis import find_problems
from barnabas.pipeline.display import Display, Refresh, Row, query_row
from barnabas.pipeline.errors import PipelineFailed, QueryFailed, error_text, spark_failures
from barnabas.pipeline.project import Project, load, project_lock
from barnabas.pipeline.spark_process import check_delta, require_spark, spark_process
from barnabas.spark.option_table import parse_duration_ms
from barnabas.spark.query_progress import QueryProgress
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from barnabas.spark import BarnabasQueryListener

__all__ = ["check_checkpoints", "check_queries", "remember_queries", "run_project"]

_POLL_S: Final = 0.1
_QUERIES_FILE: Final = ".queries.json"
"""The ids of the queries that have run, by name."""


def run_project(
    directory: Path,
    master: str | None,
    display: Display,
    *,
    once: bool,
    every: str,
    anew: bool = False,
    metrics_port: int | None = None,
) -> list[str]:
    """Runs a project's queries until all records that are there are read (`once`), or for ever. Returns their names.

    `anew`: checkpoints of queries that have run before may be missing.
    """
    require_spark()
    interval = f"{parse_duration_ms(every, '--every', bare=False)} milliseconds"
    project = load(directory)
    check_delta(project.settings["spark"])
    check_checkpoints(directory, project.checkpoints, project.checkpoint_paths(), anew=anew)
    log = directory / "spark.log"
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": interval}
    try:
        with spark_failures(log), project_lock(directory), _listener(metrics_port, display) as listener:
            check_broker(project.settings["kafka"])
            with spark_process(project.settings["name"], log, project.settings["spark"], master) as spark:
                return _run(spark, project, trigger, listener, display, once=once)
    except KeyError as error:
        raise UsageError(f"pipeline.py asks for a setting that pipeline.toml does not have: {error}") from error
    finally:
        remember_queries(directory, project.checkpoint_paths())


def check_checkpoints(directory: Path, root: Path, paths: Sequence[Path], *, anew: bool) -> None:
    """Checks the checkpoints at `paths`, which are all those below `root`; a query may have several, one after the
    other. Raises PipelineFailed for a damaged one.

    Raises UsageError for one that is missing, unless `anew`: its query would begin as if it had never run.
    """
    checkpoints = [read_checkpoint(path) for path in paths]
    there = {(checkpoint.name, checkpoint.query_id) for checkpoint in checkpoints}
    for name, query_id in _remembered(directory).items():
        if (name, query_id) not in there and not anew:
            raise UsageError(
                f"the checkpoint {root / name} is not the one that query {name} had (id {query_id}): it"
                " was deleted, or replaced. Without it the query reads from startingOffsets and writes again what it"
                " has written: restore it, or begin anew with --new"
            )
    for checkpoint in {checkpoint.name: checkpoint for checkpoint in checkpoints}.values():
        for problem in find_problems(checkpoint, None):
            raise PipelineFailed(
                f"{problem.what}; {problem.way_out}; see `barnabas pipeline repair-checkpoint {directory}`"
            )


def _remembered(directory: Path) -> dict[str, str]:
    try:
        found = json.loads((directory / _QUERIES_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remember_queries(directory: Path, paths: Sequence[Path]) -> None:
    """Writes down which queries have checkpoints, so that `check_checkpoints` notices one that is missing later."""
    checkpoints = [read_checkpoint(path) for path in paths]
    found = {checkpoint.name: checkpoint.query_id for checkpoint in checkpoints if checkpoint.query_id is not None}
    if found:
        (directory / _QUERIES_FILE).write_text(json.dumps(found))


@contextlib.contextmanager
def _listener(port: int | None, display: Display) -> Iterator["BarnabasQueryListener"]:
    from barnabas.spark import BarnabasQueryListener

    try:
        listener = BarnabasQueryListener(port)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror}; choose another one, or 0 for any") from None
    try:
        if port is not None:
            display.say(f"metrics at http://127.0.0.1:{listener.port}/metrics")
        yield listener
    finally:
        listener.close()


def _run(
    spark: "SparkSession",
    project: Project,
    trigger: Mapping[str, Any],
    listener: "BarnabasQueryListener",
    display: Display,
    *,
    once: bool,
) -> list[str]:
    seen: dict[str, QueryProgress] = {}  # the listener forgets those that have ended
    spark.streams.addListener(listener)
    queries: list[StreamingQuery] = []
    with open_admin(project.settings["kafka"]) as admin:

        def rows() -> Iterator[Row]:
            seen.update((query.name, query) for query in listener.queries())
            for _, query in sorted(seen.items()):
                yield query_row(query, _end_offsets(admin, query.read))

        with display.table(rows) as refresh:

            def finish() -> None:
                _wait(queries, refresh)
                seen.update((query.name, query) for query in _last_progress(queries))
                refresh(now=True)

            for stage in project.stages(spark, trigger):
                queries += stage
                if once:
                    finish()
            finish()
    return [str(query.name or query.id) for query in queries]


def _wait(queries: Sequence["StreamingQuery"], refresh: Refresh) -> None:
    """Waits until all queries have ended. Raises QueryFailed if one has failed."""
    while any(query.isActive for query in queries):
        check_queries(queries)
        refresh()
        time.sleep(_POLL_S)
    check_queries(queries)


def check_queries(queries: Iterable["StreamingQuery"]) -> None:
    """Raises QueryFailed if a query has failed."""
    for query in queries:
        error = query.exception()
        if error is not None:
            raise QueryFailed(f"query {query.name} has failed: {error_text(error)}")


def _last_progress(queries: Sequence["StreamingQuery"]) -> Iterator[QueryProgress]:
    """Returns the progress of queries that have ended; the listener may learn of their last batches later."""
    for query in queries:
        progress: QueryProgress | None = None
        for each in query.recentProgress:
            progress = QueryProgress.of(json.loads(each.json), progress)
        if progress is not None:
            yield progress


def _end_offsets(admin: Admin, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Returns nothing while the brokers do not answer: the queries themselves report that."""
    try:
        found = admin.list_offsets(dict.fromkeys(partitions, "latest"), timeout=2) if partitions else {}
    except BarnabasError:
        return {}
    return {partition: each.offset for partition, each in found.items()}
