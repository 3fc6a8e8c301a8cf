"""What a task of a write does: it sends its rows and leaves their transaction open for the driver to end.

A worker process serves many tasks, one at a time. The producer stays with it, in this module: under another
transactional id for each task, with the same connections.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from barnabas.client.producer.front import Producer
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.decision import Transaction
from barnabas.spark.sink.two_phase import task_id
from barnabas.spark.sink.worker_names import WriteName, next_in_this_process
from barnabas.spark.workers import TaskState, settle

if TYPE_CHECKING:
    import pyarrow

    from barnabas.client.producer.bulk.delivery import Delivery

__all__ = ["SinkRules", "Written", "write_rows"]

_PRODUCERS_MAX: Final = 4
"""Clusters, or users, that one worker keeps connections for."""
_producers: dict[tuple[tuple[str, str], ...], Producer] = {}


class Written(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, name: WriteName, rows: int, topics: tuple[str, ...], transaction: Transaction | None) -> None:
        self.name = name
        self.rows = rows
        self.topics = topics
        self.transaction = transaction
        """None without rows, and without transactions."""


class SinkRules(TaskState):
    """What all tasks of a write need to know; it is pickled with each of them."""

    def __init__(self, client: Mapping[str, str], columns: SinkColumns, *, two_phase: bool) -> None:
        self.client = dict(client)
        """Settings of a task's producer; with `two_phase` all but the transactional id."""
        self.columns = columns
        self.two_phase = two_phase


def write_rows(rules: SinkRules, batches: "Iterator[pyarrow.RecordBatch]", name: WriteName) -> Written:
    """Send all rows. Raises what the client raises; the transaction then stays open until the driver aborts it."""
    settle()
    key = tuple(sorted(rules.client.items()))
    try:
        if rules.two_phase:
            return _in_transaction(_producer(key, rules), rules, batches, name)
        return _plainly(_producer(key, rules), rules, batches, name)
    except BaseException:
        broken = _producers.pop(key, None)
        if broken is not None:
            broken.close(0)
        raise


def _in_transaction(
    producer: Producer, rules: SinkRules, batches: "Iterator[pyarrow.RecordBatch]", name: WriteName
) -> Written:
    """A transaction begins with the first row."""
    rows, topics, transactional_id = 0, set(), ""
    for batch in batches:
        if not batch.num_rows:
            continue
        if not rows:
            transactional_id = task_id(name.writer, name.run, next_in_this_process(name))
            producer.init_transactions(transactional_id=transactional_id)
            producer.begin_transaction()
        for topic, part in rules.columns.by_topic(batch):
            producer.send_table(topic, part)
            topics.add(topic)
        rows += batch.num_rows
    if not rows:
        return Written(name, 0, (), None)
    released = producer.release_transaction(producer.settings.delivery_timeout_ms / 1000)
    assert released is not None, "rows were written"
    return Written(name, rows, tuple(sorted(topics)), Transaction(transactional_id, *released))


def _plainly(
    producer: Producer, rules: SinkRules, batches: "Iterator[pyarrow.RecordBatch]", name: WriteName
) -> Written:
    rows, topics = 0, set()
    under_way: deque[Delivery] = deque()
    for batch in batches:
        if not batch.num_rows:
            continue
        for topic, part in rules.columns.by_topic(batch):
            under_way.append(producer.send_table(topic, part))
            topics.add(topic)
        rows += batch.num_rows
        while under_way and under_way[0].done():
            under_way.popleft().result()
    producer.flush()
    for delivery in under_way:
        delivery.result()
    return Written(name, rows, tuple(sorted(topics)), None)


def _producer(key: tuple[tuple[str, str], ...], rules: SinkRules) -> Producer:
    found = _producers.get(key)
    if found is None:
        while len(_producers) >= _PRODUCERS_MAX:
            _producers.pop(next(iter(_producers))).close()
        settings = {"client.id": "barnabas-spark-sink", **rules.client}
        if rules.two_phase:
            settings["transactional.id"] = "another for each task"
        found = _producers[key] = Producer(settings)
    return found
