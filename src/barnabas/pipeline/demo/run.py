"""The whole line: topics, replay, the queries, the check, the pictures."""

import contextlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas import Admin
from barnabas.cli.options import Cluster
from barnabas.cli.output import CommandFailed
from barnabas.errors import UsageError
from barnabas.pipeline.demo.check import Checks, check_archive, compare, expected_delays, read_results
from barnabas.pipeline.demo.queries import start_archive, start_delays
from barnabas.pipeline.demo.replay import Replay, forget_replay, replayed
from barnabas.pipeline.demo.report import draw, write_page
from barnabas.pipeline.demo.topics import DELAYS, EVENTS, ends, make_topics, remove_topics, write_tables
from barnabas.pipeline.queries import Ending, check_queries, is_of_spark, told
from barnabas.pipeline.spark_process import QUICKLY, spark_process
from barnabas.pipeline.watching import Row, Watcher, query_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from barnabas.spark import BarnabasQueryListener

__all__ = ["PipelineDemo"]

_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.1


class PipelineDemo:
    """`run` returns the report that is printed."""

    def __init__(
        self, address: str, directory: Path, limit: int | None, seconds: float, master: str | None, *, quiet: bool
    ) -> None:
        self._settings = {**Cluster(address, _TIMEOUT_S).settings(), "client.id": "barnabas-pipeline"}
        self._address = address
        self._directory = directory
        self._limit = limit
        self._seconds = seconds
        self._master = master
        self._quiet = quiet
        self._phases: dict[str, float] = {}

    def run(self, *, clean: bool) -> dict[str, Any]:
        """Raises UsageError if topics and checkpoints do not fit, CommandFailed if a part fails."""
        with Admin(self._settings, default_api_timeout_ms=int(_TIMEOUT_S * 1000)) as admin:
            with self._phase("topics"):
                if clean:
                    self._clean(admin)
                app_id, done = self._begin(admin)
            replay = Replay(self._settings, self._limit, done, self._seconds)
            replay.start()
            try:
                archive = self._through_spark(admin, replay, app_id)
            finally:
                replay.stop()
            return self._report(admin, replay, done, archive)

    # --- what is there ----------------------------------------------------------------------------------------------

    def _clean(self, admin: Admin) -> None:
        remove_topics(admin)
        forget_replay(admin)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _begin(self, admin: Admin) -> tuple[str, int]:
        """The name that the delays are written under, and how many flights are there. Topics and checkpoints must be
        of the same runs."""
        state = self._directory / "pipeline.json"
        new = make_topics(admin)
        write_tables(admin, self._settings)
        done = replayed(admin)
        if state.exists() and new:
            raise UsageError(
                f"the checkpoints in {self._directory} are of topics that are gone; start over with --clean"
            )
        if done and not state.exists():
            raise UsageError(
                f"topic {EVENTS} has {done:,} flights of an earlier run and its checkpoints are not in"
                f" {self._directory}; name their directory with --data-dir, or start over with --clean"
            )
        if state.exists():
            app_id = str(json.loads(state.read_text())["app_id"])
            self._say(f"continues from the checkpoints in {self._directory}: {done:,} flights were replayed before")
        else:
            app_id = f"flights-delays-{uuid.uuid4().hex[:8]}"
            self._directory.mkdir(parents=True, exist_ok=True)
            state.write_text(json.dumps({"app_id": app_id}))
            self._say("starts clean")
        return app_id, done

    # --- Spark ------------------------------------------------------------------------------------------------------

    def _through_spark(self, admin: Admin, replay: Replay, app_id: str) -> Checks:
        """Until all that is replayed is read and written; then what the archive has."""
        from barnabas.spark import BarnabasQueryListener

        log = self._directory / "spark.log"
        try:
            with self._started(log) as spark:
                listener = BarnabasQueryListener()
                spark.streams.addListener(listener)
                queries = self._start(spark, app_id)
                replay.go_live()
                with (
                    self._phase("streaming"),
                    Watcher(self._rows(admin, replay, listener), shown=not self._quiet) as it,
                ):
                    self._stream(queries, replay, it)
                with self._phase("archive check"):
                    return check_archive(spark, str(self._directory / "archive"), replay.flights)
        except (UsageError, CommandFailed):
            raise
        except Exception as error:
            if is_of_spark(error):
                raise CommandFailed(f"Spark: {told(error)} (all of it: {log})") from error
            raise

    @contextlib.contextmanager
    def _started(self, log: Path) -> Iterator["SparkSession"]:
        self._say("starting Spark")
        with contextlib.ExitStack() as stack:
            with self._phase("start of Spark"):
                spark = stack.enter_context(spark_process("barnabas-demo", log, QUICKLY, self._master))
            yield spark

    def _start(self, spark: "SparkSession", app_id: str) -> list["StreamingQuery"]:
        checkpoints = self._directory / "checkpoints"
        with self._phase("tables"):
            archive = start_archive(spark, self._address, self._directory / "archive", checkpoints / "archive")
            delays = start_delays(spark, self._address, app_id, checkpoints / "delays")
        return [archive, delays]

    def _rows(self, admin: Admin, replay: Replay, listener: "BarnabasQueryListener") -> Callable[[], Iterator[Row]]:
        def rows() -> Iterator[Row]:
            total = f" of {len(replay.flights):,}" if replay.flights else ""
            yield ("replay", "", f"{replay.done:,}{total}", "", "", "")
            there = ends(admin, EVENTS)
            for query in sorted(listener.queries(), key=lambda query: query.name):
                yield query_row(query, there)

        return rows

    def _stream(self, queries: Sequence["StreamingQuery"], replay: Replay, watcher: Watcher) -> None:
        while not replay.is_over:
            check_queries(queries)
            watcher.look()
            time.sleep(_LOOK_S)
        if replay.failure is not None:
            raise replay.failure
        waiting = [Ending(query) for query in queries]
        while any(each.is_alive() for each in waiting):
            watcher.look()
            time.sleep(_LOOK_S)
        for each in waiting:
            each.check()
        watcher.look(now=True)
        for query in queries:
            query.stop()

    # --- what came of it --------------------------------------------------------------------------------------------

    def _report(self, admin: Admin, replay: Replay, done: int, archive: Checks) -> dict[str, Any]:
        with self._phase("check"):
            self._say("comparing with pandas")
            found = read_results(admin, self._settings)
            hours = compare(found, expected_delays(replay.flights))
        problems = [*archive.problems, *hours.problems]
        report: dict[str, Any] = {
            "run": "continued" if done else "clean",
            "flights": len(replay.flights),
            "replayed": len(replay.flights) - done,
            "archived": archive.hours,
            "updates": found.records,
            "carriers_and_hours": hours.hours,
            "topics": {"events": EVENTS, "delays": DELAYS},
            "problems": problems,
            "ok": not problems,
        }
        with self._phase("plot"):
            picture, page = self._directory / "delays.png", self._directory / "delays.html"
            draw(found.frame, picture)
            facts = [(name.replace("_", " "), f"{report[name]:,}") for name in _FACTS]
            write_page(found.frame, picture, page, facts, ok=report["ok"])
        report["files"] = [str(picture), str(page)]
        report["phases"] = {name: round(seconds, 2) for name, seconds in self._phases.items()}
        return report

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._phases[name] = time.perf_counter() - began

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)


_FACTS: Final = ("flights", "replayed", "archived", "updates", "carriers_and_hours")
