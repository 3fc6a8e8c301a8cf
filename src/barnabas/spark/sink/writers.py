"""Implements Spark's writers for batches and streams, which commit each row exactly once (see `two_phase`)."""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas.client.producer.transactions.transaction_manager import PreparedTransaction
from barnabas.errors import BarnabasError, UsageError
from barnabas.spark.sink.checkpoint import BatchPlan, read_batch_plan
from barnabas.spark.sink.cluster import SinkCluster, TransactionTimeout, find_transaction_timeout
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.decision import Decision, Transaction
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.sink.tasks import SinkTaskConfig, write_rows
from barnabas.spark.sink.two_phase import PeekDecision, Step, TakeOver, commit, end_all_transactions, group_of, refusal
from barnabas.spark.sink.worker_names import WriteName

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BatchWriter", "StreamDriver", "StreamWriter", "batch_writer"]

_log = logging.getLogger("barnabas.spark")

_DRIVERS_MAX: Final = 8
"""The number of streams of one process that keep their connections between batches."""
_RETENTION_MIN_MS: Final = 60_000
"""The least offsets.retention.minutes that brokers accept: the decision about a younger batch cannot have expired."""
_drivers: "dict[tuple[str, str], StreamDriver]" = {}
_timeouts: dict[tuple[tuple[str, str], ...], TransactionTimeout] = {}


def _task_config(options: SinkOptions, schema: StructType) -> SinkTaskConfig:
    """Returns the configuration of a write's tasks. Sends requests to the brokers only once in a process. Raises
    UsageError."""
    columns = SinkColumns(schema, options.topic, options.generation)
    if not options.two_phase:
        return SinkTaskConfig(options.client, columns, two_phase=False)
    key = tuple(sorted(options.client.items()))
    if key not in _timeouts:
        _timeouts.clear()
        _timeouts[key] = find_transaction_timeout(options.client)
    client = {name: value for name, value in options.client.items() if name != "transaction.timeout.ms"}
    return SinkTaskConfig({**client, **_timeouts[key].settings()}, columns, two_phase=True)


def _transactions(messages: Sequence[Any]) -> list[Transaction]:
    return [message.transaction for message in messages if message is not None and message.transaction is not None]


def _topics(messages: Sequence[Any]) -> list[str]:
    return sorted({topic for message in messages if message is not None for topic in message.topics})


# --- streams ----------------------------------------------------------------------------------------------------------


class StreamDriver:
    """Commits the batches of a stream, as the writer's only driver from the first batch on."""

    def __init__(self, cluster: SinkCluster) -> None:
        self.cluster = cluster
        self._latest: Decision | None = None
        self._has_taken_over = False

    def commit(self, batch: int, run: str, written: Sequence[Transaction], rows: int, plan: BatchPlan) -> None:
        overdue = not self._has_taken_over and self._is_overdue(plan)
        steps = commit(
            batch,
            run,
            written,
            rows=rows,
            plan=plan.mark,
            overdue=overdue,
            latest=self._latest,
            has_taken_over=self._has_taken_over,
        )
        self._latest = self.cluster.run(steps)
        self._has_taken_over = True

    def _is_overdue(self, plan: BatchPlan) -> bool:
        """Returns whether brokers may have deleted the decision about a batch that an earlier run has planned."""
        age_ms = 0.0 if plan.at_ms is None else time.time() * 1000 - plan.at_ms
        return age_ms > _RETENTION_MIN_MS and age_ms > self.cluster.offsets_retention_ms()


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch of a stream. Spark makes a new writer for each batch, pickles it for the tasks, and calls
    `commit` on another instance."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.parse(options, streaming=True)
        self._config = _task_config(self._options, schema)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._config, iterator, _stream_write_name())

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        if not self._config.two_phase or not messages:
            return
        name = messages[0].name
        driver = _drivers.pop((name.writer, name.run), None) or self._new_driver(name)
        try:
            if driver.cluster.choose_decision_topic(_topics(messages)):
                rows, plan = (
                    sum(message.rows for message in messages),
                    read_batch_plan(self._options.checkpoint, batchId),
                )
                driver.commit(batchId, name.run, _transactions(messages), rows, plan)
        except BaseException:
            driver.cluster.close()
            raise
        while len(_drivers) >= _DRIVERS_MAX:
            _drivers.pop(next(iter(_drivers))).cluster.close()
        _drivers[name.writer, name.run] = driver

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Does nothing, since Spark also calls it after a commit that was decided. The next commit ends all open
        transactions."""

    def _new_driver(self, name: WriteName) -> StreamDriver:
        for writer, run in list(_drivers):
            if writer == name.writer:
                _drivers.pop((writer, run)).cluster.close()  # an earlier run of this query
        return StreamDriver(self._cluster(name.writer))

    def _cluster(self, writer: str) -> SinkCluster:
        return SinkCluster(self._config.client, writer, self._options.topic)


def _stream_write_name() -> WriteName:
    context = TaskContext.get()
    assert context is not None, "tasks run in Spark's workers"
    query, run = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    assert query is not None, "Spark gives each stream an id"
    return WriteName(query, run or "run", int(context.getLocalProperty("streaming.sql.batchId") or 0))


# --- batches ----------------------------------------------------------------------------------------------------------


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once, as the writer `txnAppId` or under a unique name. Spark makes the writer when it plans
    the write, and pickles it for the tasks and for the process that commits.

    A write with `txnAppId` takes over when it is planned, unless it is late. It commits only if no other driver has
    taken over since: otherwise its successor could not know which transactions to abort.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = SinkOptions.parse(options, streaming=False)
        self._config = _task_config(self._options, schema)
        self._run = uuid.uuid4().hex
        self._writer = self._options.app_id or f"save-{self._run}"
        self._driver_epoch: PreparedTransaction | None = None
        if self._options.app_id is not None and self._config.two_phase:
            with closing(self._cluster()) as cluster:
                late = refusal(self._options.version, self._run, cluster.decision(stable=False))
                if late is not None:
                    raise late
                self._driver_epoch = cluster.take_over()

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> WriterCommitMessage:
        return write_rows(self._config, iterator, WriteName(self._writer, self._run, self._options.version))

    def commit(self, messages: Sequence[Any]) -> None:
        if not self._config.two_phase:
            return
        with closing(self._cluster()) as cluster:
            if cluster.choose_decision_topic(_topics(messages)):
                steps = commit(self._options.version, self._run, _transactions(messages))
                cluster.run(_continuing(steps, cluster, self._driver_epoch))
                self._delete_group(cluster)

    def abort(self, messages: Sequence[Any]) -> None:
        """Ends the open transactions of a write with a unique name. Those of a write with `txnAppId` are ended by the
        next write, since Spark also calls this after a commit that was decided."""
        if not self._config.two_phase or self._options.app_id is not None:
            return
        with closing(self._cluster()) as cluster:
            if cluster.run(end_all_transactions()).committed:
                _log.warning("the write failed after it was decided: all of its rows are committed")
            self._delete_group(cluster)

    def _delete_group(self, cluster: SinkCluster) -> None:
        """Deletes the decision of a write with a unique name: no later write needs it."""
        if self._options.app_id is None:
            try:
                cluster.admin.delete_groups(group_of(self._writer))
            except BarnabasError as error:
                _log.info("group %s was not deleted: %s", group_of(self._writer), error)

    def _cluster(self) -> SinkCluster:
        return SinkCluster(self._config.client, self._writer, self._options.topic)


def _continuing(steps: Any, cluster: SinkCluster, driver_epoch: PreparedTransaction | None) -> Any:
    """Yields the steps of a commit, but continues with the driver epoch of the planning instead of taking over. Leaves
    PeekDecision out: planning has checked that the write is not late, or its name is unique."""
    answer: Any = None
    while True:
        try:
            step: Step = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        answer = None
        if isinstance(step, PeekDecision):
            continue
        if isinstance(step, TakeOver) and driver_epoch is not None:
            cluster.take_over(driver_epoch)
        else:
            answer = yield step


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise UsageError(
            "mode overwrite: records of a topic are not replaced; use mode append, and delete the topic or its records"
            " first if the rows are to replace them"
        )
    return BatchWriter(options, schema)
