"""Sends the rows of a write's task, and leaves the task's transaction open for the driver to end.

A worker process runs many tasks, one at a time. This module keeps the producer between them: each task has a
transactional id of its own, but the connections are the same.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from barnabas.client.producer.front import Producer
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.decision import Transaction
from barnabas.spark.sink.two_phase import task_id
from barnabas.spark.sink.worker_names import WriteName, next_task_name
from barnabas.spark.workers import TaskState, prepare_worker

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.producer.bulk.delivery import Delivery

__all__ = ["SinkCommitMessage", "SinkTaskConfig", "write_rows"]

_PRODUCERS_MAX: Final = 4
"""The number of producers (for other clusters or users) that one worker keeps."""
_producers: dict[tuple[tuple[str, str], ...], Producer] = {}


class SinkCommitMessage(WriterCommitMessage):
    """Reports a task's rows, topics and open transaction to the driver."""

    def __init__(self, name: WriteName, rows: int, topics: tuple[str, ...], transaction: Transaction | None) -> None:
        self.name = name
        self.rows = rows
        self.topics = topics
        self.transaction = transaction
        """None if the task has no rows or the write has no transactions."""


class SinkTaskConfig(TaskState):
    """The configuration that all tasks of a write share. Spark pickles it with each task."""

    def __init__(self, client: Mapping[str, str], columns: SinkColumns, *, two_phase: bool) -> None:
        self.client = dict(client)
        """The settings of a task's producer, without a transactional id."""
        self.columns = columns
        self.two_phase = two_phase


def write_rows(config: SinkTaskConfig, batches: "Iterator[pyarrow.RecordBatch]", name: WriteName) -> SinkCommitMessage:
    """Sends all rows of a task. Raises the producer's errors: the transaction then stays open until the driver aborts
    it."""
    prepare_worker()
    key = tuple(sorted(config.client.items()))
    try:
        if config.two_phase:
            return _write_in_transaction(_producer(key, config), config, batches, name)
        return _write_without_transaction(_producer(key, config), config, batches, name)
    except BaseException:
        failed = _producers.pop(key, None)
        if failed is not None:
            failed.close(0)
        raise


def _write_in_transaction(
    producer: Producer, config: SinkTaskConfig, batches: "Iterator[pyarrow.RecordBatch]", name: WriteName
) -> SinkCommitMessage:
    """Begins the transaction with the first row, so that a task without rows has none."""
    rows, topics, transactional_id = 0, set(), ""
    for batch in batches:
        if not batch.num_rows:
            continue
        if not rows:
            transactional_id = task_id(name.writer, name.run, next_task_name(name))
            producer.init_transactions(transactional_id=transactional_id)
            producer.begin_transaction()
        for topic, part in config.columns.by_topic(batch):
            producer.send_table(topic, part)
            topics.add(topic)
        rows += batch.num_rows
    if not rows:
        return SinkCommitMessage(name, 0, (), None)
    released = producer.release_transaction(producer.settings.delivery_timeout_ms / 1000)
    assert released is not None, "rows were written"
    return SinkCommitMessage(name, rows, tuple(sorted(topics)), Transaction(transactional_id, *released))


def _write_without_transaction(
    producer: Producer, config: SinkTaskConfig, batches: "Iterator[pyarrow.RecordBatch]", name: WriteName
) -> SinkCommitMessage:
    rows, topics = 0, set()
    deliveries: deque[Delivery] = deque()
    for batch in batches:
        if not batch.num_rows:
            continue
        for topic, part in config.columns.by_topic(batch):
            deliveries.append(producer.send_table(topic, part))
            topics.add(topic)
        rows += batch.num_rows
        while deliveries and deliveries[0].done():
            deliveries.popleft().result()
    producer.flush()
    for delivery in deliveries:
        delivery.result()
    return SinkCommitMessage(name, rows, tuple(sorted(topics)), None)


def _producer(key: tuple[tuple[str, str], ...], config: SinkTaskConfig) -> Producer:
    producer = _producers.get(key)
    if producer is None:
        while len(_producers) >= _PRODUCERS_MAX:
            _producers.pop(next(iter(_producers))).close()
        settings = {"client.id": "barnabas-spark-sink", **config.client}
        if config.two_phase:
            settings["transactional.id"] = "replaced by each task"
        producer = _producers[key] = Producer(settings)
    return producer
