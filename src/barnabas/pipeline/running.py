"""Running a project: a session, its queries, how far they are."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas import Admin
from barnabas.cli.output import CommandFailed, notice
from barnabas.errors import BarnabasError, UsageError
from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.diagnosis import find_problems
from barnabas.pipeline.project import Project, alone, load
from barnabas.pipeline.queries import check_queries, is_of_spark, told
from barnabas.pipeline.spark_process import need_spark, spark_process
from barnabas.pipeline.tending import admin_of, check_broker
from barnabas.pipeline.watching import Row, Watcher, query_row
from barnabas.spark.option_table import parse_duration_ms
from barnabas.spark.query_progress import QueryProgress
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from barnabas.spark import BarnabasQueryListener

__all__ = ["check", "check_checkpoints", "failures_told", "remember", "run_project"]

_LOOK_S: Final = 0.1
_SEEN: Final = ".queries.json"


def run_project(
    directory: Path,
    master: str | None,
    *,
    once: bool,
    every: str,
    anew: bool = False,
    metrics_port: int | None = None,
    quiet: bool = False,
) -> list[str]:
    """Until all that is there is read (`once`), or for ever. Gives the names of the queries. `anew`: checkpoints may
    be gone that were there."""
    need_spark()
    pause = f"{parse_duration_ms(every, '--every', bare=False)} milliseconds"
    project = load(directory)
    check_checkpoints(project, anew=anew)
    log = directory / "spark.log"
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": pause}
    try:
        with (
            failures_told(log),
            alone(directory),
            _listener(metrics_port, quiet=quiet) as listener,
        ):
            check_broker(project.settings["kafka"])
            with spark_process(project.settings["name"], log, project.settings["spark"], master) as spark:
                return _run(spark, project, trigger, listener, once=once, quiet=quiet)
    except KeyError as error:
        raise UsageError(f"pipeline.py asks for a setting that pipeline.toml does not have: {error}") from error
    finally:
        remember(directory, _paths(project))


@contextlib.contextmanager
def failures_told(log: Path) -> Iterator[None]:
    """What Spark raises becomes CommandFailed, in one line."""
    try:
        yield
    except (UsageError, CommandFailed):
        raise
    except Exception as error:
        if is_of_spark(error):
            raise CommandFailed(f"Spark: {told(error)} (all of it: {log})") from error
        raise


def check_checkpoints(project: Project, *, anew: bool) -> None:
    """See `check`."""
    check(project.directory, project.checkpoints, _paths(project), anew=anew)


def check(directory: Path, root: Path, paths: Sequence[Path], *, anew: bool) -> None:
    """Raises CommandFailed for checkpoints that are damaged, UsageError for those that are gone: a query would begin
    again as if it had never run. `paths`: all that there are below `root`; a query may have several, one after the
    other."""
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
            raise CommandFailed(
                f"{problem.what}; {problem.way_out}; see `barnabas pipeline repair-checkpoint {directory}`"
            )


def _paths(project: Project) -> list[Path]:
    return sorted(path.parent for path in project.checkpoints.glob("*/metadata"))


def _remembered(directory: Path) -> dict[str, str]:
    try:
        found = json.loads((directory / _SEEN).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remember(directory: Path, paths: Sequence[Path]) -> None:
    """Which queries there are, so that a checkpoint that is gone later is noticed."""
    checkpoints = [read_checkpoint(path) for path in paths]
    found = {checkpoint.name: checkpoint.query_id for checkpoint in checkpoints if checkpoint.query_id is not None}
    if found:
        (directory / _SEEN).write_text(json.dumps(found))


@contextlib.contextmanager
def _listener(port: int | None, *, quiet: bool) -> Iterator["BarnabasQueryListener"]:
    from barnabas.spark import BarnabasQueryListener

    try:
        listener = BarnabasQueryListener(port)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror}; choose another one, or 0 for any") from None
    try:
        if port is not None:
            text = f"metrics at http://127.0.0.1:{listener.port}/metrics"
            notice(text) if quiet else print(text, flush=True)
        yield listener
    finally:
        listener.close()


def _run(
    spark: "SparkSession",
    project: Project,
    trigger: Mapping[str, Any],
    listener: "BarnabasQueryListener",
    *,
    once: bool,
    quiet: bool,
) -> list[str]:
    seen: dict[str, QueryProgress] = {}  # the listener forgets those that have ended
    spark.streams.addListener(listener)
    queries: list[StreamingQuery] = []
    with admin_of(project.settings["kafka"]) as admin:

        def rows() -> Iterator[Row]:
            seen.update((query.name, query) for query in listener.queries())
            for _, query in sorted(seen.items()):
                yield query_row(query, _ends(admin, query.read))

        with Watcher(rows, shown=not quiet) as watcher:

            def finish() -> None:
                _wait(queries, watcher)
                seen.update((query.name, query) for query in _ended(queries))
                watcher.look(now=True)

            for stage in project.stages(spark, trigger):
                queries += stage
                if once:
                    finish()
            finish()
    return [str(query.name or query.id) for query in queries]


def _wait(queries: Sequence["StreamingQuery"], watcher: Watcher) -> None:
    """Until all have ended. Raises CommandFailed if one has failed."""
    while any(query.isActive for query in queries):
        check_queries(queries)
        watcher.look()
        time.sleep(_LOOK_S)
    check_queries(queries)


def _ended(queries: Sequence["StreamingQuery"]) -> Iterator[QueryProgress]:
    """Where queries have ended. The listener may hear of their last batches later than that."""
    for query in queries:
        progress: QueryProgress | None = None
        for each in query.recentProgress:
            progress = QueryProgress.of(json.loads(each.json), progress)
        if progress is not None:
            yield progress


def _ends(admin: Admin, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Nothing while the brokers cannot be asked: the queries say what that means for them."""
    try:
        found = admin.list_offsets(dict.fromkeys(partitions, "latest"), timeout=2) if partitions else {}
    except BarnabasError:
        return {}
    return {where: each.offset for where, each in found.items()}
