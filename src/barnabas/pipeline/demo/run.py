"""Runs the whole demo: topics, replay, queries, check, pictures."""

import contextlib
import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas import Admin
from barnabas.errors import UsageError
from barnabas.pipeline.demo.check import Checks, check_archive, compare, expected_delays, read_results
from barnabas.pipeline.demo.queries import start_archive, start_delays
from barnabas.pipeline.demo.replay import Replay, forget_replay, replayed
from barnabas.pipeline.demo.report import draw, write_page
from barnabas.pipeline.demo.topics import DELAYS, EVENTS, end_offsets, make_topics, remove_topics, write_tables
from barnabas.pipeline.display import Display, Refresh, Row, query_row
from barnabas.pipeline.errors import spark_failures
from barnabas.pipeline.runner import check_queries
from barnabas.pipeline.spark_process import SMALL, spark_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from barnabas.spark import BarnabasQueryListener

__all__ = ["TIMEOUT_MS", "PipelineDemo"]

TIMEOUT_MS: Final = 60_000

_POLL_S: Final = 0.1
_FACTS: Final = ("flights", "replayed", "archived", "updates", "carriers_and_hours")
"""Fields of the report that the page shows."""


class PipelineDemo:
    """`run` returns the report that is printed."""

    def __init__(
        self,
        settings: Mapping[str, object],
        directory: Path,
        limit: int | None,
        seconds: float,
        master: str | None,
        display: Display,
    ) -> None:
        """`settings` are those of each client."""
        self._settings = {**settings, "client.id": "barnabas-pipeline"}
        self._address = str(settings["bootstrap.servers"])
        self._directory = directory
        self._limit = limit
        self._seconds = seconds
        self._master = master
        self._display = display
        self._phases: dict[str, float] = {}

    def run(self, *, clean: bool) -> dict[str, Any]:
        """Raises UsageError if topics and checkpoints do not fit, PipelineFailed if a part fails."""
        with Admin(self._settings, default_api_timeout_ms=TIMEOUT_MS) as admin:
            with self._phase("topics"):
                if clean:
                    self.delete_all(admin)
                app_id, done = self.prepare(admin)
            replay = Replay(self._settings, self._limit, done, self._seconds)
            replay.start()
            try:
                archive = self._through_spark(admin, replay, app_id)
            finally:
                replay.stop()
            return self._report(admin, replay, done, archive)

    # --- what is there ----------------------------------------------------------------------------------------------

    def delete_all(self, admin: Admin) -> None:
        """Deletes the topics, the checkpoints and the archive."""
        remove_topics(admin)
        forget_replay(admin)
        shutil.rmtree(self._directory, ignore_errors=True)

    def prepare(self, admin: Admin) -> tuple[str, int]:
        """Returns the txnAppId of the delays and how many flights the topic has. Raises UsageError where topics and
        checkpoints are not of the same runs."""
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
            self._display.say(
                f"continues from the checkpoints in {self._directory}: {done:,} flights were replayed before"
            )
        else:
            app_id = f"flights-delays-{uuid.uuid4().hex[:8]}"
            self._directory.mkdir(parents=True, exist_ok=True)
            state.write_text(json.dumps({"app_id": app_id}))
            self._display.say("starts clean")
        return app_id, done

    # --- Spark ------------------------------------------------------------------------------------------------------

    def _through_spark(self, admin: Admin, replay: Replay, app_id: str) -> Checks:
        """Runs the queries until all replayed flights are read and written, and checks the archive."""
        from barnabas.spark import BarnabasQueryListener

        log = self._directory / "spark.log"
        with spark_failures(log), self._session(log) as spark:
            listener = BarnabasQueryListener()
            spark.streams.addListener(listener)
            queries = self._start(spark, app_id)
            replay.go_live()
            with self._phase("streaming"), self._display.table(self._rows(admin, replay, listener)) as refresh:
                self._stream(queries, replay, refresh)
            with self._phase("archive check"):
                return check_archive(spark, str(self._directory / "archive"), replay.flights)

    @contextlib.contextmanager
    def _session(self, log: Path) -> Iterator["SparkSession"]:
        self._display.say("starting Spark")
        with contextlib.ExitStack() as stack:
            with self._phase("start of Spark"):
                spark = stack.enter_context(spark_process("barnabas-demo", log, SMALL, self._master))
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
            ends = end_offsets(admin, EVENTS)
            for query in sorted(listener.queries(), key=lambda query: query.name):
                yield query_row(query, ends)

        return rows

    def _stream(self, queries: Sequence["StreamingQuery"], replay: Replay, refresh: Refresh) -> None:
        while not replay.is_over:
            check_queries(queries)
            refresh()
            time.sleep(_POLL_S)
        if replay.failure is not None:
            raise replay.failure
        waiting = [_QueryEnd(query) for query in queries]
        while any(each.is_alive() for each in waiting):
            refresh()
            time.sleep(_POLL_S)
        for each in waiting:
            each.check()
        refresh(now=True)
        for query in queries:
            query.stop()

    # --- what came of it --------------------------------------------------------------------------------------------

    def _report(self, admin: Admin, replay: Replay, done: int, archive: Checks) -> dict[str, Any]:
        with self._phase("check"):
            self._display.say("comparing with pandas")
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


class _QueryEnd(threading.Thread):
    """Waits until a query has processed all records that are there, in a thread: Spark's call for that blocks."""

    def __init__(self, query: "StreamingQuery") -> None:
        super().__init__(name=f"end of {query.name}", daemon=True)
        self._query = query
        self._failure: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._query.processAllAvailable()
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        """Raises the query's failure, if any."""
        check_queries([self._query])
        if self._failure is not None:
            raise self._failure
