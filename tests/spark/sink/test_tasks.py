"""The tasks of a write, without Spark: rows that are sent, and transactions that are left open."""

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

import barnabas  # noqa: E402
from barnabas.errors import InvalidTopic  # noqa: E402
from barnabas.spark.sink.columns import SinkColumns  # noqa: E402
from barnabas.spark.sink.tasks import SinkTaskConfig, write_rows  # noqa: E402
from barnabas.spark.sink.worker_names import WriteName  # noqa: E402
from barnabas.testing import Broker  # noqa: E402

NAME = WriteName("writer", "run", 0)


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is no worker of Spark's, and stays as it is."""
    monkeypatch.setattr("barnabas.spark.sink.tasks.prepare_worker", lambda: None)


def config_of(broker: Broker, *, two_phase: bool) -> SinkTaskConfig:
    fields = [types.StructField("value", types.StringType()), types.StructField("topic", types.StringType())]
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    if two_phase:
        settings["transaction.timeout.ms"] = "60000"
    return SinkTaskConfig(settings, SinkColumns(types.StructType(fields), None), two_phase=two_phase)


def batches_of(*rows: list[tuple[str, str]]) -> Any:
    schema = pa.schema([("value", pa.string()), ("topic", pa.string())])
    return iter([pa.RecordBatch.from_pylist([{"value": v, "topic": t} for v, t in part], schema) for part in rows])


def test_rows_go_to_their_topics(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        broker.create_topic(name)
    done = write_rows(
        config_of(broker, two_phase=False), batches_of([("1", topic), ("2", other)], [], [("3", topic)]), NAME
    )
    assert (done.name, done.rows, done.topics, done.transaction) == (NAME, 3, tuple(sorted((topic, other))), None)
    assert [record.value for record in broker.records(topic)] == [b"1", b"3"]
    assert [record.value for record in broker.records(other)] == [b"2"]


def test_a_transaction_stays_open_for_the_driver(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    config = config_of(broker, two_phase=True)
    first, second = (write_rows(config, batches_of([(text, topic)]), NAME) for text in ("1", "2"))
    assert first.transaction is not None
    assert second.transaction is not None
    assert first.transaction.transactional_id != second.transaction.transactional_id, "both tasks are of one batch"
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for done, committed in ((first, False), (second, True)):
            assert done.transaction is not None
            transactional_id, producer_id, producer_epoch = done.transaction
            assert admin.describe_transactions(transactional_id)[transactional_id].state == "Ongoing"
            admin.end_transaction(
                transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, committed=committed
            )
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with barnabas.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll(60)] == [b"2"]


def test_a_task_without_rows_has_no_transaction(broker: Broker) -> None:
    done = write_rows(config_of(broker, two_phase=True), batches_of([], []), NAME)
    assert (done.rows, done.topics, done.transaction) == (0, (), None)


def test_a_task_that_fails_does_not_spoil_the_next(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    config = config_of(broker, two_phase=False)
    with pytest.raises(InvalidTopic, match="no topic"):
        write_rows(config, batches_of([("1", "no topic")]), NAME)
    assert write_rows(config, batches_of([("2", topic)]), NAME).rows == 1
