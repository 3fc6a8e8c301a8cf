"""The sink with places at which an order is carried out: the worker is killed or raises, or it stands still there until
the harness has killed, or paused, what it wants.

Spark finds it as `format("sinkchaos")`. Orders are files in a directory that an option names. Each row gets a key that
says who wrote it, and as which of its rows.
"""

from __future__ import annotations

import json
import os
import signal
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.sink.cluster import SinkCluster
from barnabas.spark.sink.two_phase import EndTransactions, Step, TakeOver, WriteDecision
from barnabas.spark.sink.writers import StreamWriter

DIRECTORY = "kafka.chaos"
JITTER_MS = "kafka.chaos.jitter"
IN_COMMIT = ("before-take-over", "taken-over", "before-decision", "deciding", "decided", "first-ended", "ended")


class Places:
    """Where one batch's tasks and its commit tell that they have come to a place."""

    def __init__(self, directory: Path, jitter_ms: int) -> None:
        self.directory, self.jitter_ms = directory, jitter_ms

    def reach(self, point: str, batch: int, part: int = 0) -> None:
        """Carry out the order for this place, as often as it says."""
        self._trace(point, batch, part)
        self._dawdle(point, batch, part)
        path = self.directory / "order.json"
        try:
            order = json.loads(path.read_text())
        except FileNotFoundError:
            return
        if (order["point"], order["batch"], part) != (point, batch, 0):
            return
        if order["times"] > 1:
            path.with_suffix(".new").write_text(json.dumps({**order, "times": order["times"] - 1}))
            path.with_suffix(".new").rename(path)
        else:
            path.unlink()
        (self.directory / "done").write_text(str(os.getpid()))
        if order["kind"] == "raise":
            raise RuntimeError(f"ordered at {point}")
        if order["kind"] == "stall":
            while not (self.directory / "go-on").exists():
                time.sleep(0.05)
            self._trace("woken", batch, part)
            return
        os.kill(os.getpid(), signal.SIGKILL if order["kind"] == "worker" else signal.SIGSTOP)

    def _trace(self, point: str, batch: int, part: int) -> None:
        with (self.directory / "trace").open("a") as trace:
            trace.write(f"{point} {batch} {part} {os.getpid()}\n")

    def _dawdle(self, point: str, batch: int, part: int) -> None:
        """Batches are short: so kills at random times meet all places."""
        if self.jitter_ms:
            time.sleep(zlib.crc32(f"{point} {batch} {part}".encode()) % self.jitter_ms / 1000)


class ChaosCluster(SinkCluster):
    places: Places
    batch = -1
    """Of the commit under way; clusters are kept between batches."""

    def execute(self, step: Step) -> Any:
        match step:
            case TakeOver():
                self.reach("before-take-over")
            case WriteDecision():
                self.reach("before-decision")
            case EndTransactions():
                self.reach("decided")
                if step.commits:
                    super().execute(EndTransactions(step.commits[:1], ()))
                    self.reach("first-ended")
        answer = super().execute(step)
        if isinstance(step, TakeOver):
            self._watch_producer()
            self.reach("taken-over")
        elif isinstance(step, EndTransactions):
            self.reach("ended")
        return answer

    def reach(self, point: str) -> None:
        self.places.reach(point, ChaosCluster.batch)

    def _watch_producer(self) -> None:
        producer: Any = self._producer
        send = producer.send_offsets_to_transaction

        def sending(*args: Any, **named: Any) -> Any:
            answer = send(*args, **named)
            self.reach("deciding")
            return answer

        producer.send_offsets_to_transaction = sending


class ChaosWriter(StreamWriter):
    def __init__(self, options: dict[str, str], schema: Any, places: Places) -> None:
        self.places = places
        super().__init__(options, schema)

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        batch, part = int(context.getLocalProperty("streaming.sql.batchId")), context.partitionId()
        who = f"{context.getLocalProperty('spark.jobGroup.id')}/{part}.{context.attemptNumber()}.{os.getpid()}/{batch}"

        def rows() -> Iterator[Any]:
            self.places.reach("begun", batch, part)
            written = 0
            for each in iterator:
                keys = pa.array([b"%s/%d" % (who.encode(), written + n) for n in range(each.num_rows)], pa.binary())
                written += each.num_rows
                column = each.schema.get_field_index("key")
                each = each.set_column(column, each.schema.field(column).with_type(pa.binary()), keys)
                half = each.num_rows // 2
                yield each.slice(0, half)
                self.places.reach("mid-write", batch, part)
                yield each.slice(half)

        message = super().write(rows())
        self.places.reach("written", batch, part)
        return message

    def commit(self, messages: Any, batchId: int) -> None:
        ChaosCluster.batch = batchId
        if self._config.two_phase:
            super().commit(messages, batchId)
        else:
            for point in IN_COMMIT:
                self.places.reach(point, batchId)

    def _cluster(self, writer: str) -> SinkCluster:
        cluster = ChaosCluster(self._config.client, writer, self._options.topic)
        cluster.places = self.places
        return cluster


class DefaultSource(BarnabasDataSource):
    @classmethod
    def name(cls) -> str:
        return "sinkchaos"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        options = self._options()
        lowered = {name.lower(): name for name in options}
        directory = Path(options.pop(lowered[DIRECTORY]))
        jitter_ms = int(options.pop(lowered.get(JITTER_MS, ""), 0))
        return ChaosWriter(options, schema, Places(directory, jitter_ms))
