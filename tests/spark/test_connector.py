"""Spark's own Kafka connector (JVM) against our broker, and beside our source where both have to see the same rows.

Needs `make spark-connector` and the pyspark that it is for: `make test-spark PYSPARK=4.2.0`.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

from .conftest import Writer, connector_jars

pytest.importorskip("pyspark")
pytestmark = pytest.mark.skipif(
    not connector_jars(), reason="no connector for this pyspark: make test-spark PYSPARK=4.2.0"
)

START_MS = int(time.time()) * 1000 - 3_600_000
LIMIT_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"log.cleaner.backoff.ms": 50}) as broker:
        yield broker


@pytest.fixture
def read(spark: Any, broker: Broker, topic: str) -> Callable[..., Any]:
    def load(how: str, **options: Any) -> Any:
        reader = spark.read.format(how).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        if not {"assign", "subscribePattern"} & options.keys():
            reader = reader.option("subscribe", topic)
        return reader.options(**{name.replace("__", "."): str(value) for name, value in options.items()}).load()

    return load


@pytest.fixture
def same(read: Callable[..., Any]) -> Callable[..., list[tuple[int, int]]]:
    """What both see, or the test fails: (partition, offset), sorted."""

    def ask(**options: Any) -> list[tuple[int, int]]:
        theirs, ours = (
            [_plain(row) for row in read(how, **options).orderBy("topic", "partition", "offset").collect()]
            for how in ("kafka", "barnabas")
        )
        assert ours == theirs
        return sorted((row[3], row[4]) for row in theirs)

    return ask


def _plain(row: Any) -> tuple[Any, ...]:
    """A record without headers has a null there by the connector, an empty list by us (Spark is quicker with it)."""
    return tuple(value or None if name == "headers" else value for name, value in row.asDict().items())


def some(partition: int, *numbers: range) -> list[tuple[int, int]]:
    return [(partition, offset) for each in numbers for offset in each]


# --- batch reads ------------------------------------------------------------------------------------------------------


def test_rows_are_the_same_by_both(
    same: Callable[..., Any], read: Callable[..., Any], broker: Broker, topic: str
) -> None:
    broker.create_topic(topic, 2)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"one", key=b"k", timestamp=START_MS + 123, headers=[("h", b"x"), ("n", None)])
        producer.send(topic, None, timestamp=START_MS + 124, partition=1)
        producer.send(topic, b"", key=b"", timestamp=START_MS)
    assert len(same(includeHeaders="true")) == len(same()) == 3
    theirs = read("kafka", includeHeaders="true")
    assert theirs.schema.simpleString() == read("barnabas", includeHeaders="true").schema.simpleString()
    row = theirs.where("key = 'k'").collect()[0]
    assert (row.value, row.timestampType, [tuple(header) for header in row.headers]) == (
        b"one",
        0,
        [("h", b"x"), ("n", None)],
    )


def test_ranges_and_splits(
    same: Callable[..., Any], read: Callable[..., Any], broker: Broker, writer: Writer, topic: str
) -> None:
    broker.create_topic(topic, 2)
    writer.write(topic, 0, range(300))
    writer.write(topic, 1, range(20))
    everything = some(0, range(300)) + some(1, range(20))
    assert same(subscribePattern=topic[:-1] + "[" + topic[-1] + "]") == everything
    assert same(assign=json.dumps({topic: [1]})) == some(1, range(20))
    assert same(minPartitions=7) == same(maxRecordsPerPartition=33) == everything
    assert read("kafka", minPartitions=7).rdd.getNumPartitions() == 7
    between = {
        "startingOffsets": json.dumps({topic: {"0": 290, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 2}}),
    }
    assert same(**between) == some(0, range(290, 300)) + some(1, range(2))


def test_times(same: Callable[..., Any], broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic, 2)
    for second in range(10):
        writer.write(topic, second % 2, range(1), timestamp=START_MS + 1000 * second)
    assert same(startingTimestamp=START_MS + 3000, endingTimestamp=START_MS + 6500) == [(0, 2), (0, 3), (1, 1), (1, 2)]
    times = json.dumps({topic: {"0": START_MS + 7500, "1": START_MS + 8500}})
    assert same(startingOffsetsByTimestamp=times) == [(0, 4), (1, 4)]
    assert same(endingOffsetsByTimestamp=times) == some(0, range(4)) + some(1, range(4))
    never = {"startingTimestamp": 4_000_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert same(**never) == []


def test_aborted_and_open_transactions(same: Callable[..., Any], broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for ends in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction, None):
            producer.begin_transaction()
            producer.send_many(topic, [b"x"] * 3)
            producer.flush()
            if ends is not None:
                ends()
        assert same() == some(0, range(3), range(4, 7), range(8, 11), range(12, 15))
        assert same(kafka__isolation__level="read_committed") == some(0, range(3), range(8, 11))
        producer.abort_transaction()


def test_lost_offsets(
    same: Callable[..., Any], read: Callable[..., Any], broker: Broker, writer: Writer, topic: str
) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(20))
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({(topic, 0): 8})
    start = {"startingOffsets": json.dumps({topic: {"0": 3}})}
    with pytest.raises(Exception, match="OffsetOutOfRangeException"):
        read("kafka", **start).collect()
    assert same(**start, failOnDataLoss="false") == some(0, range(8, 20))


def test_compacted_topics(same: Callable[..., Any], broker: Broker, topic: str) -> None:
    """Offsets that are gone from the middle are no loss."""
    config = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    broker.create_topic(topic, configs=config)
    rounds, keys = 20, 100
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(rounds):
            producer.send_many(topic, [b"x" * 1000] * keys, keys=[b"%d" % key for key in range(keys)])
            producer.flush()
    broker.wait_for(lambda: len(broker.records(topic)) < rounds * keys, what="the cleaner's work", timeout=60)
    left = same()
    assert [(0, record.offset) for record in broker.records(topic)] == left
    assert left[0] > (0, 0)
    assert left[-keys:] == some(0, range((rounds - 1) * keys, rounds * keys))


# --- writes -----------------------------------------------------------------------------------------------------------


class Sink:
    """Writes frames by the connector; reads what is there by our consumer."""

    def __init__(self, spark: Any, broker: Broker, topic: str) -> None:
        self.spark, self.broker, self.topic = spark, broker, topic

    def to(self, writer: Any, topic: str | None = None) -> Any:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", self.broker.bootstrap_servers)
        return writer.option("topic", topic or self.topic)

    def records(self, topic: str | None = None) -> list[Any]:
        name = topic or self.topic
        with barnabas.Consumer(
            bootstrap_servers=self.broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            parts = [(name, part.partition) for part in consumer.partitions_for(name)]
            consumer.assign(parts)
            ends, found = consumer.end_offsets(parts), []
            while any(consumer.position(where) < end for where, end in ends.items()):
                found += consumer.poll(1)
            return found

    def values(self, topic: str | None = None) -> list[int]:
        return sorted(int(record.value) for record in self.records(topic))


@pytest.fixture
def sink(spark: Any, broker: Broker, topic: str) -> Sink:
    broker.create_topic(topic, 3)
    return Sink(spark, broker, topic)


def test_rows_become_records(sink: Sink) -> None:
    rows = [("k", b"one", 2, [("h", b"x"), ("n", None)]), (None, None, None, None), ("", b"", 0, [])]
    schema = "key string, value binary, partition int, headers array<struct<key:string,value:binary>>"
    frame = sink.spark.createDataFrame(rows, schema).coalesce(1)
    sink.to(frame.write).option("includeHeaders", "true").save()
    found = {record.value: record for record in sink.records()}
    one = found[b"one"]
    assert (one.key, one.partition, [tuple(header) for header in one.headers]) == (b"k", 2, [("h", b"x"), ("n", None)])
    assert found[None].key is None
    assert (found[b""].key, found[b""].partition) == (b"", 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(sink: Sink, same: Callable[..., Any], codec: str) -> None:
    frame = sink.spark.range(0, 20_000, 1, 3).selectExpr("cast(id as string) as value")
    sink.to(frame.write).option("kafka.compression.type", codec).option("kafka.linger.ms", "20").save()
    assert sink.values() == list(range(20_000))
    assert len(same()) == 20_000


# --- streams ----------------------------------------------------------------------------------------------------------


class Copy:
    """A query from topic to topic, both by the connector, at least once."""

    def __init__(self, sink: Sink, path: Path) -> None:
        self.sink, self.path = sink, path
        self.source = f"{sink.topic}-source"
        sink.broker.create_topic(self.source, 2)

    def start(self, mode: str = "append", trigger: dict[str, Any] | None = None, **options: Any) -> Any:
        reader = self.sink.spark.readStream.format("kafka").option("subscribe", self.source)
        reader = reader.option("kafka.bootstrap.servers", self.sink.broker.bootstrap_servers)
        frame = reader.option("startingOffsets", "earliest").options(**options).load().select("key", "value")
        writer = self.sink.to(frame.writeStream).outputMode(mode).option("checkpointLocation", str(self.path))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, **options: Any) -> list[int]:
        """All that is there now; the rows of each batch."""
        query = self.start(**options)
        assert query.awaitTermination(LIMIT_S)
        if query.exception() is not None:
            raise query.exception()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def wait_for(self, query: Any, count: int) -> None:
        def there() -> bool:
            if query.exception() is not None:
                raise query.exception()
            return sum(self.sink.broker.end_offsets(self.sink.topic)) >= count

        self.sink.broker.wait_for(there, what=f"{count} copied records", timeout=LIMIT_S)


@pytest.fixture
def copy(sink: Sink, tmp_path: Path) -> Copy:
    return Copy(sink, tmp_path / "checkpoint")


@pytest.fixture(params=["true", "false"], ids=["offsets-by-consumer", "offsets-by-admin"])
def offsets_by(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """Who asks for offsets on the driver: a consumer of a group, or (the default) an administrator."""
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, request.param)
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("offsets_by")
def test_what_is_there_then_what_came(copy: Copy, writer: Writer) -> None:
    writer.write(copy.source, 0, range(50))
    writer.write(copy.source, 1, range(50, 60))
    assert copy.run(maxOffsetsPerTrigger=20, minPartitions=4) == [19, 19, 19, 3]
    assert copy.sink.values() == list(range(60))
    assert copy.run() == []
    with barnabas.Admin(bootstrap_servers=copy.sink.broker.bootstrap_servers) as admin:
        admin.create_partitions({copy.source: 3})
    other = Writer(copy.sink.broker)
    other.write(copy.source, 2, range(60, 70))
    other.producer.close()
    assert copy.run() == [10]
    assert copy.sink.values() == list(range(70))


def test_a_restart_of_the_broker_under_a_running_query(copy: Copy, writer: Writer) -> None:
    query = copy.start(trigger={"processingTime": "0 seconds"})
    try:
        writer.write(copy.source, 0, range(100))
        copy.wait_for(query, 100)
        copy.sink.broker.restart()
        writer.write(copy.source, 1, range(100, 200))
        copy.wait_for(query, 200)
    finally:
        query.stop()
    assert sorted(set(copy.sink.values())) == list(range(200))


def test_continuous_processing(copy: Copy, writer: Writer) -> None:
    query = copy.start(trigger={"continuous": "1 second"})
    try:
        writer.write(copy.source, 0, range(100))
        copy.wait_for(query, 100)
    finally:
        query.stop()
    assert copy.sink.values() == list(range(100))


def test_real_time_mode(spark: Any, copy: Copy, writer: Writer) -> None:
    """Tasks run for the whole batch and hand each record on at once: far sooner than the batch ends."""
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "5000")
    writer.write(copy.source, 0, range(10))
    query = copy.start("update", {"realTime": "5 minutes"})
    try:
        copy.wait_for(query, 10)
        for number in range(10, 60):
            writer.write(copy.source, number % 2, range(number, number + 1))
        copy.wait_for(query, 60)
        assert not [each for each in query.recentProgress if each["numInputRows"]]  # the first batch still runs
    finally:
        query.stop()
    assert copy.sink.values() == list(range(60))


def test_real_time_mode_goes_on_after_its_batches(spark: Any, copy: Copy, writer: Writer) -> None:
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000")
    for start in (0, 100):
        query = copy.start("update", {"realTime": "1 second"})
        try:
            writer.write(copy.source, 0, range(start, start + 100))
            copy.wait_for(query, start + 100)
            batches = query.lastProgress["batchId"] if query.lastProgress else 0
            copy.sink.broker.wait_for(
                lambda query=query, batches=batches: (query.lastProgress or {"batchId": -1})["batchId"] > batches,
                what="the next batch",
                timeout=LIMIT_S,
            )
        finally:
            query.stop()
    assert copy.sink.values() == list(range(200))
