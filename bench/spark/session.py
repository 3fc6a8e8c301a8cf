"""Runs one Spark session of the comparison with all its rows: ``python -m bench.spark.session ORDERS OUT``."""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.spark.memory import Memory
from bench.spark.orders import READY, Orders

if TYPE_CHECKING:
    from bench.spark.loads import Loads

PARTITIONS = (1, 2, 4, 8)
NEVER_WARMED = ("micro-batch", "lag")
"""Rows without a warm-up round: they leave out their own beginning, or take too long to repeat."""
MICRO_BATCH_ROUNDS = 2


class Row(NamedTuple):
    """A row of the table. `run` does the work once for a format and returns rec/s, or ms where `unit` says so."""

    name: str
    run: Callable[[str], float]
    unit: str = "rec/s"
    variants: tuple[str, ...] = ()
    """Further variants of one format each, which is their first word."""
    has_bound: bool = False
    """Whether the row also runs with `bench.spark.ready`."""


def rows_of(loads: Loads, lag_gb: float) -> list[Row]:
    found = []
    for size in (100, 1024):
        label = "100 B" if size == 100 else "1 KB"
        found += [
            Row(f"batch read {label}", lambda how, size=size: loads.batch_read(how, size), has_bound=True),
            Row(f"AvailableNow {label}", lambda how, size=size: loads.available_now(how, size), has_bound=True),
            Row(f"batch write {label}", lambda how, size=size: loads.batch_write(how, size), has_bound=True),
            Row(
                f"batch write {label}, cheap rows",
                lambda how, size=size: loads.batch_write(how, size, cheap=True),
                has_bound=True,
            ),
        ]
    found.append(Row("read with JSON parsed", loads.read_json, variants=("barnabas valueFormat",)))
    found.append(Row("micro-batch topic to topic, 8 partitions", loads.micro_batches, "ms", has_bound=True))
    found += [
        Row(f"read 100 B, {count} partitions", lambda how, count=count: loads.batch_read(how, 100, count))
        for count in PARTITIONS
    ]
    if lag_gb:
        found.append(Row(f"lag of {lag_gb:g} GB, AvailableNow", lambda how: loads.lag(how, lag_gb)))
    return found


class Session:
    """Runs the rows, formats in turn."""

    def __init__(self, orders: Orders, loads: Loads, memory: Memory) -> None:
        self.orders = orders
        self.loads = loads
        self.memory = memory
        self.results: dict[str, dict[str, Any]] = {}
        self.failures: list[str] = []

    def run(self) -> None:
        for row in rows_of(self.loads, self.orders.lag_gb):
            if self.orders.rows and not any(re.search(wanted, row.name) for wanted in self.orders.rows):
                continue
            self._row(row)
            self.loads.tidy()

    def _row(self, row: Row) -> None:
        hows = [how for how in self.orders.formats if how != READY or row.has_bound]
        hows += (each for each in row.variants if each.split()[0] in self.orders.formats)
        rounds = [False, *[True] * self.orders.rounds]  # the first warms up, and memory is looked at
        if row.name.startswith(NEVER_WARMED):
            rounds = [True] * (min(MICRO_BATCH_ROUNDS, self.orders.rounds) if row.unit == "ms" else 1)
        for counts in rounds:
            for how in list(hows):
                try:
                    value = self._once(row, how, watched=not counts or len(rounds) < 3)
                except Exception as error:
                    traceback.print_exc()
                    self.failures.append(
                        f"{self.orders.session}, {row.name}, {how}: {str(error).splitlines()[0][:200]}"
                    )
                    hows.remove(how)
                    continue
                if counts:
                    self._note(row, how)["values"].append(value)
        for how in hows:
            shown = statistics.median(self.results[row.name][how]["values"])
            print(f"{self.orders.session}: {row.name}, {how}: {shown:,.0f} {row.unit}", flush=True)

    def _once(self, row: Row, how: str, *, watched: bool) -> float:
        if not watched:
            return row.run(how)
        with self.memory.watched() as peaks:
            value = row.run(how)
        found = self._note(row, how)
        for name, megabytes in peaks.items():
            found[name] = max(found.get(name, 0.0), megabytes)
        return value

    def _note(self, row: Row, how: str) -> dict[str, Any]:
        return self.results.setdefault(row.name, {}).setdefault(how, {"unit": row.unit, "values": []})


def spark_session(orders: Orders) -> Any:
    """Starts a session: `plain` with Spark's defaults, `tuned` with the settings that we advise."""
    from pyspark.sql import SparkSession

    from barnabas.spark import session

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.log.level": "ERROR",
    }
    if orders.jars:
        settings["spark.jars"] = ",".join(orders.jars)
    if orders.session == "tuned":
        return session("bench", master="local[2]", settings=settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(arguments: list[str]) -> int:
    from bench.spark.loads import Loads  # pyarrow is needed here only

    orders = Orders(**json.loads(arguments[0]))
    spark = spark_session(orders)
    if READY in orders.formats:
        from bench.spark.ready import ReadySource

        spark.dataSource.register(ReadySource)
    memory = Memory(os.getpid())
    with Loads(spark, orders.address, orders.records, Path(orders.directory)) as loads:
        session = Session(orders, loads, memory)
        session.run()
    versions = {"pyspark": spark.version, "python": sys.version.split()[0]}
    document = {"results": session.results, "failures": session.failures, "versions": versions}
    Path(arguments[1]).write_text(json.dumps(document))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
