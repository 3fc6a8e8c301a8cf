"""The sink with places at which an order is carried out: kill the JVM, the broker or the worker, or raise.

Spark finds it as `format("sinkchaos")`. Orders are files in a directory that an option names.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from barnabas.spark.sink import StreamWriter
from barnabas.spark.sink_cluster import SinkCluster
from barnabas.spark.source import BarnabasDataSource
from barnabas.spark.two_phase import Decide, End, Step, TakeOver

ORDER = "order.json"
DIRECTORY = "kafka.chaos"


def reach(directory: Path, point: str, batch: int, part: int = 0) -> None:
    """Carry out the order for this place, once."""
    try:
        order = json.loads((directory / ORDER).read_text())
        if (order["point"], order["batch"], part) != (point, batch, 0):
            return
        (directory / ORDER).rename(directory / "done.json")
    except FileNotFoundError:
        return
    kind = order["kind"]
    if kind == "raise":
        raise RuntimeError(f"ordered at {point}")
    if kind == "worker":
        os._exit(1)
    os.kill(int((directory / f"{kind}.pid").read_text()), signal.SIGKILL)
    if kind == "jvm":
        threading.Event().wait(60)  # the JVM's end is ours


class ChaosCluster(SinkCluster):
    directory: Path
    batch = -1
    """Of the commit under way; clusters are kept between batches."""

    def take(self, step: Step) -> Any:
        if isinstance(step, TakeOver):
            reach(self.directory, "before-take-over", ChaosCluster.batch)
        elif isinstance(step, Decide):
            reach(self.directory, "before-decision", ChaosCluster.batch)
        elif isinstance(step, End):
            reach(self.directory, "decided", ChaosCluster.batch)
            if step.commits:
                super().take(End(step.commits[:1], ()))
                reach(self.directory, "first-ended", ChaosCluster.batch)
        answer = super().take(step)
        if isinstance(step, End):
            reach(self.directory, "ended", ChaosCluster.batch)
        return answer


class ChaosWriter(StreamWriter):
    def __init__(self, options: dict[str, str], schema: Any, directory: Path) -> None:
        self.directory = directory
        super().__init__(options, schema)

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        batch, part = int(context.getLocalProperty("streaming.sql.batchId")), context.partitionId()

        def rows() -> Iterator[Any]:
            for each in iterator:
                half = each.num_rows // 2
                yield each.slice(0, half)
                reach(self.directory, "mid-write", batch, part)
                yield each.slice(half)

        message = super().write(rows())
        reach(self.directory, "written", batch, part)
        return message

    def commit(self, messages: Any, batchId: int) -> None:
        ChaosCluster.batch = batchId
        if self._rules.two_phase:
            super().commit(messages, batchId)
        else:
            for point in ("before-take-over", "before-decision", "decided", "first-ended", "ended"):
                reach(self.directory, point, batchId)

    def _cluster(self, writer: str) -> SinkCluster:
        cluster = ChaosCluster(self._options.client, writer, self._options.topic)
        cluster.directory = self.directory
        return cluster


class DefaultSource(BarnabasDataSource):
    @classmethod
    def name(cls) -> str:
        return "sinkchaos"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        options = self._options()
        directory = Path(options.pop(DIRECTORY))
        return ChaosWriter(options, schema, directory)
