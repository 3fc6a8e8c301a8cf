"""Writes by a real Spark session to a real broker: batches, and `foreachBatch`."""

import datetime
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.two.phase.commit.enable": "true", "auto.create.topics.enable": "false"}
    with Broker(settings=settings) as broker:
        yield broker


class Sink:
    """Writes frames, and reads what is committed."""

    def __init__(self, spark: Any, broker: Broker, topic: str) -> None:
        self.spark, self.broker, self.topic = spark, broker, topic

    def save(self, frame: Any, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("barnabas").mode(mode).option("bootstrap.servers", self.broker.bootstrap_servers)
        for name, value in {"topic": self.topic, **options}.items():
            writer = writer if value is None else writer.option(name.replace("__", "."), value)
        writer.save()

    def numbers(self, count: int, tasks: int = 2, start: int = 0) -> Any:
        return self.spark.range(start, start + count, 1, tasks).selectExpr("cast(id as string) as value")

    def committed(self, topic: str | None = None) -> list[Any]:
        name = topic or self.topic
        with barnabas.Consumer(
            bootstrap_servers=self.broker.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            parts = [(name, index) for index in range(len(self.broker.end_offsets(name)))]
            consumer.assign(parts)
            ends = consumer.end_offsets(parts)
            records = []
            while any(consumer.position(where) < end for where, end in ends.items()):
                records += consumer.poll(1)
            return records

    def values(self, topic: str | None = None) -> list[int]:
        return sorted(int(record.value) for record in self.committed(topic))

    def left_open(self) -> list[str]:
        with barnabas.Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            return [found.transactional_id for found in admin.list_transactions(states=["Ongoing"])]

    def groups(self) -> list[str]:
        with barnabas.Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            return [found.group_id for found in admin.list_groups()]

    def refused(self, frame: Any, mode: str = "append", **options: Any) -> str:
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException) as caught:
            self.save(frame, mode, **options)
        return str(caught.value)


@pytest.fixture
def sink(spark: Any, broker: Broker, topic: str) -> Sink:
    broker.create_topic(topic, 3)
    return Sink(spark, broker, topic)


@pytest.mark.smoke
def test_rows_become_records(sink: Sink) -> None:
    at = datetime.datetime(2026, 3, 1, 12, 0, 0, 123000, datetime.UTC)
    rows = [
        ("k", b"one", 2, at, [("h", b"x"), ("n", None)]),
        (None, None, None, None, None),
        ("", b"", 0, at, []),
    ]
    schema = (
        "key string, value binary, partition int, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    )
    sink.save(sink.spark.createDataFrame(rows, schema).coalesce(1))
    found = {record.value: record for record in sink.committed()}
    one, none, empty = found[b"one"], found[None], found[b""]
    assert (one.key, one.partition, one.timestamp) == (b"k", 2, int(at.timestamp() * 1000))
    assert [tuple(header) for header in one.headers] == [("h", b"x"), ("n", None)]
    assert (none.key, none.headers) == (None, ())
    assert none.timestamp > one.timestamp
    assert (empty.key, empty.partition) == (b"", 0)
    assert sink.left_open() == []
    assert sink.groups() == []


def test_rows_name_their_topics(sink: Sink) -> None:
    other = sink.topic + "-b"
    sink.broker.create_topic(other)
    frame = sink.spark.range(100).selectExpr(
        "cast(id as string) as value", f"if(id % 3 = 0, '{other}', '{sink.topic}') as topic"
    )
    sink.save(frame, topic=None)
    assert sink.values(other) == list(range(0, 100, 3))
    assert sink.values() == [number for number in range(100) if number % 3]
    sink.save(frame)
    assert len(sink.values()) == 66 + 100


def test_readers_go_on_with_the_rows_of_a_full_refresh(sink: Sink) -> None:
    from barnabas.spark import switch_generation

    sink.save(sink.numbers(50), generation=1)
    sink.save(sink.numbers(60), generation=2)
    assert {record.headers for record in sink.committed()} == {(("generation", b"1"),), (("generation", b"2"),)}
    offsets = switch_generation(sink.broker.bootstrap_servers, "refreshed", sink.topic)
    new = [record for record in sink.committed() if record.offset >= offsets[record.topic, record.partition]]
    assert sorted(int(record.value) for record in new) == list(range(60))
    assert "option generation='-1' must be a whole number" in sink.refused(sink.numbers(1), generation=-1)


@pytest.mark.parametrize("mode", ["two-phase", "none"])
def test_a_larger_write(sink: Sink, mode: str) -> None:
    sink.save(sink.numbers(50_000, tasks=5), exactlyOnce=mode)
    sink.save(sink.numbers(0), exactlyOnce=mode)
    assert sink.values() == list(range(50_000))
    assert sink.left_open() == []


def test_a_task_that_fails_leaves_nothing(sink: Sink) -> None:
    frame = sink.spark.range(0, 2000, 1, 4).selectExpr(
        "if(id < 1999, cast(id as string), cast(raise_error('no') as string)) as value"
    )
    assert "no" in sink.refused(frame)
    assert sink.values() == []
    assert sink.left_open() == []


def test_a_version_is_written_once(sink: Sink) -> None:
    name = {"txnAppId": f"nightly {sink.topic}"}
    for version in (0, 0, 3, 3):
        sink.save(sink.numbers(10, start=100 * version), **name, txnVersion=version)
    assert sink.values() == [*range(10), *range(300, 310)]
    said = sink.refused(sink.numbers(10), **name, txnVersion=2)
    assert "batch 2 is to be written, but this writer has committed up to batch 3" in said
    assert len(sink.values()) == 20
    assert sink.left_open() == []


def test_what_is_wrong_is_named(sink: Sink) -> None:
    frame = sink.numbers(1)
    assert "there is no column value, string or binary, but id" in sink.refused(sink.spark.range(1))
    assert "mode append" in sink.refused(frame, mode="overwrite")
    assert "Give option topic, or a column topic" in sink.refused(frame, topic=None)
    assert "exactlyOnce='twice' must be one of" in sink.refused(frame, exactlyOnce="twice")
    assert f"'{sink.topic}x'" in sink.refused(frame, topic=sink.topic + "x", kafka__max__block__ms=1000)
    assert "there is no partition 7" in sink.refused(
        frame.selectExpr("value", "7 as partition"), kafka__max__block__ms=1000
    )
    assert sink.left_open() == []


def copying(sink: Sink, source: str, path: Path) -> Any:
    """A query that copies the topic, begun anew from the checkpoint at the path."""
    servers = sink.broker.bootstrap_servers
    reader = sink.spark.readStream.format("barnabas").option("bootstrap.servers", servers)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.option("checkpointLocation", str(path)).trigger(availableNow=True)
    return writer.format("barnabas").option("bootstrap.servers", servers).option("topic", sink.topic)


def feed(sink: Sink, source: str, numbers: range) -> None:
    with barnabas.Producer(bootstrap_servers=sink.broker.bootstrap_servers) as producer:
        producer.send_many(source, [b"%d" % number for number in numbers]).result(30)


@pytest.mark.smoke
def test_a_stream_goes_on_and_refuses_an_older_checkpoint(sink: Sink, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    source, path, older = sink.topic + "-in", tmp_path / "checkpoint", tmp_path / "older"
    sink.broker.create_topic(source, 2)
    for batch in range(2):
        feed(sink, source, range(10 * batch, 10 * batch + 10))
        copying(sink, source, path).start().awaitTermination(120)
        if not batch:
            shutil.copytree(path, older)
        assert sink.values() == list(range(10 * batch + 10))
    feed(sink, source, range(20, 30))
    copying(sink, source, path).start().awaitTermination(120)
    with pytest.raises(StreamingQueryException, match=r"batch 1 is to be written, .* up to batch 2"):
        copying(sink, source, older).start().awaitTermination(120)
    assert sink.values() == list(range(30))
    assert sink.left_open() == []


def test_a_checkpoint_that_is_older_by_one_batch_is_refused_and_a_batch_may_be_repeated(
    sink: Sink, tmp_path: Path
) -> None:
    """Both times batch 1 is written again, with as many rows as before."""
    from pyspark.errors import StreamingQueryException

    source, path, older = sink.topic + "-in", tmp_path / "checkpoint", tmp_path / "older"
    sink.broker.create_topic(source, 2)
    for batch in range(2):
        feed(sink, source, range(10 * batch, 10 * batch + 10))
        copying(sink, source, path).start().awaitTermination(120)
        if not batch:
            shutil.copytree(path, older)
    with pytest.raises(StreamingQueryException, match=r"batch 1 is committed, and is now .* with other rows"):
        copying(sink, source, older).start().awaitTermination(120)
    for name in ("1", ".1.crc"):
        (path / "commits" / name).unlink(missing_ok=True)
    copying(sink, source, path).start().awaitTermination(120)
    assert sink.values() == list(range(20))
    feed(sink, source, range(20, 30))
    copying(sink, source, path).start().awaitTermination(120)
    assert sink.values() == list(range(30))
    assert sink.left_open() == []


def test_a_batch_that_was_planned_before_decisions_are_forgotten_is_not_repeated(sink: Sink, tmp_path: Path) -> None:
    """Its query was killed behind the decision, and away for longer than brokers keep a group's offsets."""
    from pyspark.errors import StreamingQueryException

    source, path = sink.topic + "-in", tmp_path / "checkpoint"
    sink.broker.create_topic(source, 2)
    for batch in range(2):
        feed(sink, source, range(10 * batch, 10 * batch + 10))
        copying(sink, source, path).start().awaitTermination(120)
    offsets, commits = path / "offsets", path / "commits"
    week_ms = 7 * 24 * 3_600_000
    at_ms = re.compile(r'"batchTimestampMs":(\d+)')
    text = (offsets / "1").read_text()
    (offsets / "1").write_text(at_ms.sub(lambda found: f'"batchTimestampMs":{int(found[1]) - week_ms - 1}', text))
    for file in (offsets / ".1.crc", commits / "1", commits / ".1.crc"):
        file.unlink(missing_ok=True)
    with barnabas.Admin(bootstrap_servers=sink.broker.bootstrap_servers) as admin:
        admin.delete_groups([name for name in sink.groups() if name.startswith("spark-sink.")])
    with pytest.raises(StreamingQueryException, match=r"copy commits/0 of the checkpoint to commits/1; if not"):
        copying(sink, source, path).start().awaitTermination(120)
    assert sink.values() == list(range(20))
    shutil.copy(commits / "0", commits / "1")
    feed(sink, source, range(20, 30))
    copying(sink, source, path).start().awaitTermination(120)
    assert sink.values() == list(range(30))
    assert sink.left_open() == []


def test_a_batch_that_is_repeated_after_the_topic_was_changed_is_where_it_was(sink: Sink, tmp_path: Path) -> None:
    """Killed behind the decision, started again with another topic, twice."""
    source, path, other = sink.topic + "-in", tmp_path / "checkpoint", sink.topic + "-other"
    sink.broker.create_topic(source, 2)
    sink.broker.create_topic(other, 2)

    def run(batch: int, topic: str) -> None:
        feed(sink, source, range(10 * batch, 10 * batch + 10))
        copying(sink, source, path).option("topic", topic).start().awaitTermination(120)

    run(0, sink.topic)
    for repeated, topic in ((0, other), (1, sink.topic)):
        for name in (str(repeated), f".{repeated}.crc"):
            (path / "commits" / name).unlink(missing_ok=True)
        run(repeated + 1, topic)
    assert sink.values() == [*range(10), *range(20, 30)]
    assert sink.values(other) == list(range(10, 20))
    assert sink.left_open() == []


def test_each_version_of_foreach_batch_is_written_once(sink: Sink, tmp_path: Path) -> None:
    source = sink.topic + "-in"
    sink.broker.create_topic(source, 2)
    feed(sink, source, range(20))

    def twice(rows: Any, batch: int) -> None:
        for tasks in (1, 2):
            sink.save(rows.repartition(tasks), txnAppId=sink.topic, txnVersion=batch)

    copying(sink, source, tmp_path).foreachBatch(twice).start().awaitTermination(120)
    assert sink.values() == list(range(20))
    assert sink.left_open() == []
