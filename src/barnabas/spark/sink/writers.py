"""Writes to topics: batches and streams, each row once. See `two_phase` for how, `sink_tasks` for what tasks do."""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.producer.transactions.transaction_manager import PreparedTransaction
from barnabas.errors import BarnabasError, UsageError
from barnabas.spark.sink.checkpoint import Planned, planned
from barnabas.spark.sink.cluster import Keeping, SinkCluster, keeping
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.decision import Decision, Transaction
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.sink.tasks import SinkRules, write_rows
from barnabas.spark.sink.two_phase import Glance, Step, TakeOver, commit, end_all, group_of, refusal
from barnabas.spark.sink.worker_names import WriteName

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BatchWriter", "StreamDriver", "StreamWriter", "batch_writer", "rules_of", "stream_writer"]

_log = logging.getLogger("barnabas.spark")

_DRIVERS_MAX: Final = 8
"""Queries that write at the same time from one session and keep their connections."""
_RETENTION_MIN_MS: Final = 60_000
"""offsets.retention.minutes is at least 1: it need not be asked for about a batch that is younger."""
_drivers: "dict[tuple[str, str], StreamDriver]" = {}
_kept: dict[tuple[tuple[str, str], ...], Keeping] = {}


def rules_of(options: SinkOptions, schema: StructType) -> SinkRules:
    """Raises UsageError. The brokers are asked once in a process."""
    columns = SinkColumns(schema, options.topic, options.generation)
    if not options.two_phase:
        return SinkRules(options.client, columns, two_phase=False)
    key = tuple(sorted(options.client.items()))
    if key not in _kept:
        _kept.clear()
        _kept[key] = keeping(options.client)
    client = {name: value for name, value in options.client.items() if name != "transaction.timeout.ms"}
    return SinkRules({**client, **_kept[key].settings()}, columns, two_phase=True)


def _transactions(messages: Sequence[Any]) -> list[Transaction]:
    return [message.transaction for message in messages if message is not None and message.transaction is not None]


def _topics(messages: Sequence[Any]) -> list[str]:
    return sorted({topic for message in messages if message is not None for topic in message.topics})


# --- streams ----------------------------------------------------------------------------------------------------------


class StreamDriver:
    """What the process that commits a stream's batches keeps between them: its place as the only driver."""

    def __init__(self, cluster: SinkCluster) -> None:
        self.cluster = cluster
        self._latest: Decision | None = None
        self._holds = False

    def commit(self, batch: int, run: str, written: Sequence[Transaction], rows: int, plan: Planned) -> None:
        overdue = not self._holds and self._is_overdue(plan)
        steps = commit(
            batch, run, written, rows=rows, plan=plan.mark, overdue=overdue, latest=self._latest, holds=self._holds
        )
        self._latest = self.cluster.run(steps)
        self._holds = True

    def _is_overdue(self, plan: Planned) -> bool:
        """Only a batch of an earlier run can be so old."""
        age_ms = 0.0 if plan.at_ms is None else time.time() * 1000 - plan.at_ms
        return age_ms > _RETENTION_MIN_MS and age_ms > self.cluster.decisions_kept_ms()


class StreamWriter(DataSourceStreamArrowWriter):
    """Made anew for each micro-batch and pickled for its tasks; `commit` is called on yet another instance."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.parse(options, streaming=True)
        self._rules = rules_of(self._options, schema)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._rules, iterator, _stream_batch())

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        if not self._rules.two_phase or not messages:
            return
        name = messages[0].name
        driver = _drivers.pop((name.writer, name.run), None) or self._new_driver(name)
        try:
            if driver.cluster.finds_place(_topics(messages)):
                rows, plan = sum(message.rows for message in messages), planned(self._options.checkpoint, batchId)
                driver.commit(batchId, name.run, _transactions(messages), rows, plan)
        except BaseException:
            driver.cluster.close()
            raise
        while len(_drivers) >= _DRIVERS_MAX:
            _drivers.pop(next(iter(_drivers))).cluster.close()
        _drivers[name.writer, name.run] = driver

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Nothing: Spark calls it also after a commit that was decided. The next commit ends what is left open."""

    def _new_driver(self, name: WriteName) -> StreamDriver:
        for writer, run in list(_drivers):
            if writer == name.writer:
                _drivers.pop((writer, run)).cluster.close()  # an earlier run of this query
        return StreamDriver(self._cluster(name.writer))

    def _cluster(self, writer: str) -> SinkCluster:
        return SinkCluster(self._rules.client, writer, self._options.topic)


def _stream_batch() -> WriteName:
    context = TaskContext.get()
    assert context is not None, "tasks run in Spark's workers"
    query, run = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    assert query is not None, "a stream has an id"
    return WriteName(query, run or "run", int(context.getLocalProperty("streaming.sql.batchId") or 0))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    return StreamWriter(options, schema)


# --- batches ----------------------------------------------------------------------------------------------------------


class BatchWriter(DataSourceArrowWriter):
    """One write: of `txnAppId`, or of a name that nobody else has. Made where the write is planned; pickled for the
    tasks, and for the process that commits.

    Under a name that others have, too, it takes over when it is planned, unless it is late, and commits only if nobody
    has since: a successor could not know otherwise what is to be aborted.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.parse(options, streaming=False)
        self._rules = rules_of(self._options, schema)
        self._run = uuid.uuid4().hex
        self._writer = self._options.app_id or f"save-{self._run}"
        self._began_as: PreparedTransaction | None = None
        if self._options.app_id is not None and self._rules.two_phase:
            cluster = self._cluster()
            try:
                late = refusal(self._options.version, self._run, cluster.decision(final=False))
                if late is not None:
                    raise late
                self._began_as = cluster.take_over()
            finally:
                cluster.close()

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._rules, iterator, WriteName(self._writer, self._run, self._options.version))

    def commit(self, messages: Sequence[Any]) -> None:
        if not self._rules.two_phase:
            return
        cluster = self._cluster()
        try:
            if cluster.finds_place(_topics(messages)):
                steps = commit(self._options.version, self._run, _transactions(messages))
                cluster.run(_continuing(steps, cluster, self._began_as))
                self._tidy(cluster)
        finally:
            cluster.close()

    def abort(self, messages: Sequence[Any]) -> None:
        """Nobody comes again under a name of its own: what is open is ended now. Under `txnAppId` the next write does
        so; Spark calls this also after a commit that was decided."""
        if not self._rules.two_phase or self._options.app_id is not None:
            return
        cluster = self._cluster()
        try:
            if cluster.run(end_all()).committed:
                _log.warning("the write failed after it was decided: all of its rows are committed")
            self._tidy(cluster)
        finally:
            cluster.close()

    def _tidy(self, cluster: SinkCluster) -> None:
        """Nobody will ask for the decision of a name that does not come again."""
        if self._options.app_id is None:
            try:
                cluster.admin.delete_groups(group_of(self._writer))
            except BarnabasError as error:
                _log.info("group %s is left behind: %s", group_of(self._writer), error)

    def _cluster(self) -> SinkCluster:
        return SinkCluster(self._rules.client, self._writer, self._options.topic)


def _continuing(steps: Any, cluster: SinkCluster, began_as: PreparedTransaction | None) -> Any:
    """The steps of a commit; taking over is going on as who the write began as. Whether that is late was looked at
    then, or it is alone."""
    answer: Any = None
    while True:
        try:
            step: Step = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        answer = None
        if isinstance(step, Glance):
            continue
        if isinstance(step, TakeOver) and began_as is not None:
            cluster.take_over(began_as)
        else:
            answer = yield step


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise UsageError(
            "mode overwrite: records of a topic are not replaced; use mode append, and delete the topic or its records"
            " before if that is what you want"
        )
    return BatchWriter(options, schema)
