"""Batch reads by a real Spark session from a real broker."""

import json
import time
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

from ..conftest import Writer

pytest.importorskip("pyspark")

START_MS = int(time.time()) * 1000 - 3_600_000
"""Of records with times of their own; older ones would fall to retention."""


@pytest.fixture
def read(spark: Any, broker: Broker, topic: str) -> Any:
    def load(**options: Any) -> Any:
        reader = spark.read.format("barnabas").option("bootstrap.servers", broker.bootstrap_servers)
        if not {"assign", "subscribePattern", "subscribe"} & options.keys():
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader

    return load


def rows(frame: Any) -> list[tuple[int, int]]:
    """(partition, offset) of all records, sorted."""
    return sorted((row.partition, row.offset) for row in frame.load().select("partition", "offset").collect())


def refused(frame: Any) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        frame.load().collect()
    return str(caught.value)


@pytest.mark.smoke
def test_rows_are_those_of_sparks_connector(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"one", key=b"k", timestamp=START_MS + 123, headers=[("h", b"x"), ("n", None)])
        producer.send(topic, None, timestamp=START_MS + 124)
        producer.send(topic, b"", key=b"", timestamp=2**62)
    found = read(includeHeaders=True).load()
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    first, second, third = found.orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"one", topic, 0, 0)
    assert [tuple(header) for header in first.headers] == [("h", b"x"), ("n", None)]
    assert found.selectExpr("unix_millis(timestamp) as ms").orderBy("ms").collect()[1].ms == START_MS + 123
    assert (second.key, second.value, second.headers, second.timestampType) == (None, None, [], 0)
    assert (third.key, third.value, third.timestamp) == (b"", b"", None)
    assert "headers" not in read().load().columns


def test_ranges_and_splits(read: Any, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic, 2)
    writer.write(topic, 0, range(300))
    writer.write(topic, 1, range(20))
    everything = [(0, offset) for offset in range(300)] + [(1, offset) for offset in range(20)]
    for options in ({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 33}):
        assert rows(read(**options)) == everything
    assert read(minPartitions=7).load().rdd.getNumPartitions() == 7
    some = {
        "startingOffsets": json.dumps({topic: {"0": 290, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": -1, "1": 2}}),
    }
    assert rows(read(**some)) == [*((0, offset) for offset in range(290, 300)), (1, 0), (1, 1)]
    assert rows(read(assign=json.dumps({topic: [1]}))) == everything[300:]
    assert rows(read(subscribePattern=topic[:-1] + "[" + topic[-1] + "]")) == everything


def test_times(read: Any, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    for second in range(10):
        writer.write(topic, 0, range(1), timestamp=START_MS + 1000 * second)
    assert rows(read(startingTimestamp=START_MS + 3000, endingTimestamp=START_MS + 6500)) == [
        (0, o) for o in range(3, 7)
    ]
    assert rows(read(startingTimestamp=START_MS + 8500)) == [(0, 9)]
    said = refused(read(startingTimestamp=4_000_000_000_000))
    assert f"startingTimestamp: {topic}-0 has no record at or after 4000000000000" in said
    assert rows(read(startingTimestamp=4_000_000_000_000, startingOffsetsByTimestampStrategy="latest")) == []


def test_an_empty_topic_is_an_empty_table(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    assert rows(read()) == []


def test_aborted_and_open_transactions(read: Any, broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for ends in (producer.commit_transaction, producer.abort_transaction, None):
            producer.begin_transaction()
            producer.send(topic, b"x")
            producer.flush()
            if ends is not None:
                ends()
        assert rows(read()) == [(0, 0), (0, 2), (0, 4)]
        assert rows(read(isolationLevel="read_committed")) == [(0, 0)]
        assert rows(read(kafka__isolation__level="read_committed")) == [(0, 0)]
        producer.abort_transaction()


def test_the_columns_that_a_query_names(read: Any, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(3))
    found = read().schema("value binary, offset bigint").load()
    assert [tuple(row) for row in found.orderBy("offset").collect()] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert "did you mean offset" in refused(read().schema("ofset bigint"))
    assert "column value is binary, not string" in refused(read().schema("value string"))


def test_lost_offsets_are_named(read: Any, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(20))
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({(topic, 0): 8})
    start = {"startingOffsets": json.dumps({topic: {"0": 3}})}
    said = refused(read(**start))
    assert f"5 offsets are lost ({topic}-0, offsets 3 to 7): the log begins at 8 now" in said
    assert "onDataLoss=warn" in said
    assert rows(read(**start, onDataLoss="warn")) == [(0, offset) for offset in range(8, 20)]
    assert rows(read(**start, failOnDataLoss="false")) == [(0, offset) for offset in range(8, 20)]
    end = {"endingOffsets": json.dumps({topic: {"0": 25}})}
    assert f"5 offsets are lost ({topic}-0, offsets 20 to 24): option endingOffsets wants more" in refused(read(**end))
    assert rows(read(**end, onDataLoss="skip")) == [(0, offset) for offset in range(8, 20)]


def test_what_is_wrong_is_named(read: Any, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic, 2)
    writer.write(topic, 0, range(5))
    assert f"subscribe: topic '{topic}x' does not exist" in refused(read(subscribe=topic + "x"))
    assert f"did you mean {topic}?" in refused(read(subscribe=topic + "x"))
    assert f"option assign: {topic}-2 does not exist" in refused(read(assign=json.dumps({topic: [0, 2]})))
    assert f"startingOffsets says nothing of {topic}-1" in refused(read(startingOffsets=json.dumps({topic: {"0": 1}})))
    more = json.dumps({topic: {"0": 1, "1": 0, "2": 0}})
    assert f"startingOffsets names {topic}-2, which the query does not read" in refused(read(startingOffsets=more))
    assert "did you mean minPartitions?" in refused(read(minPartition=3))
    order = {
        "startingOffsets": json.dumps({topic: {"0": 4, "1": 0}}),
        "endingOffsets": json.dumps({topic: {"0": 2, "1": 0}}),
    }
    assert f"{topic}-0 begins at 4, behind its end 2" in refused(read(**order))


def test_sql_over_a_temporary_view(spark: Any, broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    writer.write(topic, 0, range(10))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING barnabas OPTIONS ("
        f"`bootstrap.servers` '{broker.bootstrap_servers}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT sum(offset) AS total FROM orders WHERE partition = 0").collect()[0].total == 45


@pytest.mark.parametrize(("by_spark", "by_us"), [(True, True), (True, False), (False, True)])
def test_conditions(
    read: Any, spark: Any, broker: Broker, writer: Writer, topic: str, by_spark: bool, by_us: bool
) -> None:
    """Whoever looks at them: the same rows."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", by_spark)
    broker.create_topic(topic, 2)
    for second in range(10):
        writer.write(topic, 1, range(1), timestamp=START_MS + 1000 * second)

    def frame() -> Any:
        return read(filterPushdown=by_us).load()

    def offsets(condition: str) -> list[int]:
        return sorted(row.offset for row in frame().where(condition).select("offset").collect())

    assert offsets("partition = 0") == []
    assert offsets("partition = 1 AND offset BETWEEN 3 AND 5 AND topic LIKE 'spark%'") == [3, 4, 5]
    assert offsets("offset IN (2, 7, 99) OR offset = 4") == [2, 4, 7]
    assert offsets(f"timestamp >= timestamp_millis({START_MS + 7000}) AND value IS NOT NULL") == [7, 8, 9]
    assert offsets("timestamp > timestamp_millis(4000000000000)") == []
    assert offsets(f"timestamp < timestamp_millis({START_MS + 2000})") == [0, 1]
    assert frame().where("partition = 1 AND offset = 3").rdd.getNumPartitions() == 1
