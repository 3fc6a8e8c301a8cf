"""The Spark sink's exactly-once writes on Apache Kafka, with and without two-phase commits (KIP-939)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.client.admin.topics import NewTopic
from barnabas.spark.sink.cluster import SinkCluster, TransactionTimeout, find_transaction_timeout
from barnabas.spark.sink.decision import Transaction
from barnabas.spark.sink.two_phase import Lost, WriteDecision, commit, task_id

from .harness.broker import KAFKA_LIBS, KafkaBroker

pytestmark = pytest.mark.skipif(
    not any(KAFKA_LIBS.glob("kafka-tools-*.jar")) or shutil.which("java") is None,
    reason="needs java and the jars of Apache Kafka (make interop-clients)",
)

KINDS = {
    "two-phase": {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"},
    "with a timeout": {"transaction.max.timeout.ms": "600000"},
}


@contextmanager
def kafka(directory: Path, settings: dict[str, str]) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(directory, settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka(tmp_path_factory.mktemp("kafka"), KINDS[kind]) as broker:
        yield broker


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from barnabas.spark.sessions import session

    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "1g"}
    found = session("tests", master="local[2]", settings=settings)
    yield found
    found.stop()


class Topics:
    """A topic to read and one to write, and who is in between."""

    def __init__(self, servers: str, spark: Any = None) -> None:
        self.servers, self.spark = servers, spark
        self.name = f"spark-{time.monotonic_ns()}"
        with barnabas.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(self.name, 3), NewTopic(self.name + "-in", 3)])

    def save(self, numbers: range, **options: Any) -> None:
        rows = self.spark.range(numbers.start, numbers.stop, 1, 2).selectExpr("cast(id as string) as value")
        writer = rows.write.format("barnabas").mode("append").option("bootstrap.servers", self.servers)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.option("topic", self.name).save()

    def feed(self, numbers: range) -> None:
        with barnabas.Producer(bootstrap_servers=self.servers) as producer:
            producer.send_many(self.name + "-in", [b"%d" % number for number in numbers]).result(60)

    def copy(self, checkpoint: Path) -> None:
        reader = self.spark.readStream.format("barnabas").option("bootstrap.servers", self.servers)
        rows = reader.option("subscribe", self.name + "-in").option("startingOffsets", "earliest").load()
        writer = rows.select("value").writeStream.format("barnabas").option("bootstrap.servers", self.servers)
        writer = writer.option("topic", self.name).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    def values(self) -> list[int]:
        with barnabas.Consumer(
            bootstrap_servers=self.servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            parts = [(self.name, index) for index in range(3)]
            consumer.assign(parts)
            ends = consumer.end_offsets(parts)
            found = []
            while any(consumer.position(topic_partition) < end for topic_partition, end in ends.items()):
                found += [int(record.value or b"") for record in consumer.poll(1)]
            return sorted(found)

    def left_open(self) -> list[str]:
        with barnabas.Admin(bootstrap_servers=self.servers) as admin:
            return [found.transactional_id for found in admin.list_transactions(states=["Ongoing"])]


def test_what_kafka_allows_is_used(broker: KafkaBroker, kind: str) -> None:
    wanted = TransactionTimeout(True, 0) if kind == "two-phase" else TransactionTimeout(False, 600_000)
    assert find_transaction_timeout({"bootstrap.servers": broker.bootstrap}) == wanted


@pytest.mark.spark
def test_batch_writes(broker: KafkaBroker, spark: Any) -> None:
    topics = Topics(broker.bootstrap, spark)
    topics.save(range(1000))
    for version in (0, 1, 1):
        topics.save(range(1000 + 100 * version, 1100 + 100 * version), txnAppId=topics.name, txnVersion=version)
    assert topics.values() == list(range(1200))
    assert topics.left_open() == []


@pytest.mark.spark
def test_a_stream_repeats_a_batch_and_refuses_an_older_checkpoint(
    broker: KafkaBroker, spark: Any, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topics, checkpoint, older = Topics(broker.bootstrap, spark), tmp_path / "checkpoint", tmp_path / "older"
    for batch in range(2):
        topics.feed(range(10 * batch, 10 * batch + 10))
        topics.copy(checkpoint)
        if not batch:
            shutil.copytree(checkpoint, older)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    topics.copy(checkpoint)
    with pytest.raises(StreamingQueryException, match="batch 1 is committed"):
        topics.copy(older)
    topics.feed(range(20, 30))
    topics.copy(checkpoint)
    assert topics.values() == list(range(30))
    assert topics.left_open() == []


def test_what_was_open_for_longer_than_kafka_allows_is_told(tmp_path: Path) -> None:
    """The weaker promise: the driver dies behind its decision, and stays away for longer than the timeout."""
    settings = {"transaction.max.timeout.ms": "20000"}  # on a busy machine seconds are over before the decision
    with kafka(tmp_path, settings) as broker:
        topics, client = Topics(broker.bootstrap), {"bootstrap.servers": broker.bootstrap}
        client |= find_transaction_timeout(client).settings()
        assert client["transaction.timeout.ms"] == "20000"
        name = task_id("q", "run", "0.0")
        with barnabas.Producer({**client, "transactional.id": name}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_many(topics.name, [b"1", b"2"])
            released = producer.release_transaction()
        assert released is not None
        written = [Transaction(name, *released)]
        driver, steps, answer = SinkCluster(client, "q", topics.name), commit(0, "run", written), None
        while not isinstance(step := steps.send(answer), WriteDecision):
            answer = driver.execute(step)
        driver.execute(step)
        driver.close()
        deadline = time.monotonic() + 120
        while topics.left_open():
            assert time.monotonic() < deadline, "Kafka keeps the transaction"
            time.sleep(0.1)
        successor = SinkCluster(client, "q", topics.name)
        with pytest.raises(Lost, match=r"q/run/0\.0 .* is decided, but cannot be committed"):
            successor.run(commit(0, "run-2", []))
        successor.close()
        assert topics.values() == []
