"""Streaming reads by a real Spark session from a real broker: each record once, whatever happens in between."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.client.errors import KeysMove
from barnabas.testing import Broker

from ..conftest import Writer

pytest.importorskip("pyspark")


class Stream:
    """A query that can be stopped and started again: topic to Parquet files, which Spark writes once by its own log."""

    def __init__(self, spark: Any, broker: Broker, topic: str, path: Path) -> None:
        self.spark = spark
        self.out, self.checkpoint = str(path / "out"), str(path / "checkpoint")
        self.options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }

    def start(self, *, trigger: dict[str, Any], **options: Any) -> Any:
        given = {name: value for name, value in {**self.options, **options}.items() if value is not None}
        frame = self.spark.readStream.format("barnabas").options(**given).load()
        writer = frame.writeStream.format("parquet").option("path", self.out)
        return writer.option("checkpointLocation", self.checkpoint).trigger(**trigger).start()

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """All that is there now; what Spark says of each batch with rows."""
        query = self.start(trigger={"availableNow": True}, **options)
        query.awaitTermination(120)
        if query.exception() is not None:
            raise query.exception()
        progress = [json.loads(each.json) if hasattr(each, "json") else each for each in query.recentProgress]
        return [each for each in progress if each["numInputRows"]]

    def fails(self, **options: Any) -> str:
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException) as caught:
            self.run(**options)
        return str(caught.value)

    def rows(self) -> list[tuple[int, int]]:
        if not Path(self.out).exists():
            return []
        frame = self.spark.read.schema("topic string, partition int, offset bigint").parquet(self.out)
        return sorted((row.partition, row.offset) for row in frame.collect())

    def crash_after_batch(self, batch: int) -> None:
        """As if the JVM had been killed when this batch was planned and its end not noted."""
        for name in (f"commits/{batch}", f"commits/.{batch}.crc"):
            (Path(self.checkpoint) / name).unlink(missing_ok=True)


@pytest.fixture
def stream(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> Stream:
    return Stream(spark, broker, topic, tmp_path)


def some(partition: int, *numbers: range) -> list[tuple[int, int]]:
    return [(partition, offset) for each in numbers for offset in each]


@pytest.mark.smoke
def test_what_is_there_then_what_came(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic, 2)
    writer.write(topic, 0, range(50))
    writer.write(topic, 1, range(10))
    batches = stream.run(maxOffsetsPerTrigger=20, minPartitions=4)
    assert [each["numInputRows"] for each in batches] == [19, 19, 19, 3]
    assert stream.rows() == some(0, range(50)) + some(1, range(10))
    source = batches[-1]["sources"][0]
    assert source["endOffset"][topic] == source["latestOffset"][topic] == {"0": 50, "1": 10}
    assert source["latestOffset"]["@behind"]["maxOffsetsBehindLatest"] == "0"
    behind = batches[0]["sources"][0]["latestOffset"]["@behind"]
    assert behind["minOffsetsBehindLatest"] != "0"
    assert 41 * 10 < int(behind["estimatedTotalBytesBehindLatest"]) < 41 * 1000
    assert stream.run() == []
    writer.write(topic, 1, range(5))
    assert len(stream.run()) == 1
    assert stream.rows() == some(0, range(50)) + some(1, range(15))


def test_partitions_and_topics_that_come_later(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic, 1)
    pattern = {"subscribe": None, "subscribePattern": f"{topic}(-more)?"}
    writer.write(topic, 0, range(5))
    stream.run(**pattern)
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin, pytest.warns(KeysMove):
        admin.create_partitions({topic: 3})
    broker.create_topic(f"{topic}-more")
    writer.write(topic, 2, range(7))
    writer.write(f"{topic}-more", 0, range(3))
    stream.run(**pattern)
    assert stream.rows() == sorted(some(0, range(5), range(3)) + some(2, range(7)))


def test_a_replay_of_the_first_batch_reads_what_it_read(
    stream: Stream, broker: Broker, writer: Writer, topic: str
) -> None:
    """A start that depends on now is settled by the first try."""
    broker.create_topic(topic)
    writer.write(topic, 0, range(10), timestamp=int(time.time()) * 1000 - 60_000)
    stream.run(startingTimestamp=1_600_000_000_000)
    stream.crash_after_batch(0)
    for file in Path(stream.out).rglob("*"):  # the sink has forgotten, too
        if file.is_file():
            file.unlink()
    writer.write(topic, 0, range(5))
    stream.run(startingTimestamp=4_000_000_000_000, startingOffsetsByTimestampStrategy="latest")
    assert stream.rows() == some(0, range(15))


def test_a_replay_plans_the_same_tasks(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(100))
    stream.run(minPartitions=5)
    stream.crash_after_batch(0)
    stream.run(minPartitions=2)
    assert stream.rows() == some(0, range(100))
    assert json.loads((Path(stream.checkpoint) / "offsets" / "0").read_text().splitlines()[-1])["@plan"] == {
        "min_partitions": 5
    }


def test_a_running_query_takes_what_comes(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic, 2)
    query = stream.start(trigger={"processingTime": "0 seconds"}, groupIdForLag=f"{topic}-lag")
    try:
        for round_ in range(3):
            writer.write(topic, round_ % 2, range(10))
            query.processAllAvailable()
        writer.write(topic, 0, range(1))
        query.processAllAvailable()
        assert stream.rows() == some(0, range(21)) + some(1, range(10))
        broker.wait_for(
            lambda: broker.lag(f"{topic}-lag") == {(topic, 0): 0, (topic, 1): 0}, what="the group's offsets"
        )
    finally:
        query.stop()


def test_a_topic_made_again_is_noticed(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(5))
    stream.run()
    broker.delete_topic(topic)
    broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(8):  # more than before: by offsets alone nobody would see it
            producer.send(topic, b"new")
    said = stream.fails()
    assert f"topic {topic} was deleted and made again" in said
    assert f"{topic}-0 up to 5 was read of the old one" in said
    assert "onDataLoss=warn" in said
    stream.run(onDataLoss="warn")
    assert stream.rows() == sorted(some(0, range(5)) + some(0, range(8)))


def test_lost_ranges_are_named_or_left_out(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(10))
    stream.run()
    writer.write(topic, 0, range(10))
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({(topic, 0): 14})
    assert f"4 offsets are lost ({topic}-0, offsets 10 to 13)" in stream.fails()
    stream.run(onDataLoss="warn")
    assert stream.rows() == some(0, range(10), range(14, 20))


def test_offsets_that_the_connector_of_the_jvm_has_written(
    stream: Stream, broker: Broker, writer: Writer, topic: str
) -> None:
    """A checkpoint may be taken over from it: partitions and offsets, and nothing else."""
    broker.create_topic(topic, 2)
    writer.write(topic, 0, range(5))
    stream.run()
    offsets = Path(stream.checkpoint) / "offsets" / "0"
    lines = offsets.read_text().splitlines()
    offsets.write_text("\n".join([*lines[:-1], json.dumps({topic: {"1": 0, "0": 3}})]))
    (offsets.parent / ".0.crc").unlink(missing_ok=True)
    writer.write(topic, 1, range(2))
    stream.run()
    assert stream.rows() == sorted(some(0, range(5), range(3, 5)) + some(1, range(2)))


def test_leader_epochs_are_kept(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(5))
    stream.run()
    kept = json.loads((Path(stream.checkpoint) / "offsets" / "0").read_text().splitlines()[-1])
    assert kept["@epochs"] == {topic: {"0": 0}}


def test_transactions(stream: Stream, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    seen = []
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()

        def transaction(end: Callable[[], Any]) -> None:
            producer.begin_transaction()
            for _ in range(3):
                producer.send(topic, b"x")
            producer.flush()
            stream.run(isolationLevel="read_committed")  # open: not there yet
            end()
            stream.run(isolationLevel="read_committed")
            seen.append(stream.rows())

        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            transaction(end)
    assert seen == [some(0, range(3)), some(0, range(3)), some(0, range(3), range(8, 11))]


def test_what_is_wrong_is_named(stream: Stream, broker: Broker, writer: Writer, topic: str) -> None:
    assert f"option subscribe: topic '{topic}' does not exist" in stream.fails()
    broker.create_topic(topic)
    writer.write(topic, 0, range(3))
    assert "option endingOffsets is for batch reads" in stream.fails(endingOffsets="latest")
    stream.run()
    offsets = Path(stream.checkpoint) / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace('"@ids"', '"@idz"'))
    (offsets.parent / ".0.crc").unlink(missing_ok=True)
    writer.write(topic, 0, range(3))
    assert "the offsets in the query's checkpoint cannot be read: ['@idz'] is not known" in stream.fails()
