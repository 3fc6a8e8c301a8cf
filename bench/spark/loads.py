"""The work of each row, run once through one format; our own producer writes the topics that Spark reads."""

from __future__ import annotations

import itertools
import json
import statistics
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

import barnabas
from barnabas.client.admin.topics import NewTopic
from bench.spark.orders import READY

TABLE_ROWS = 10_000
SERVERS = {"kafka": "kafka.bootstrap.servers", "barnabas": "bootstrap.servers"}
MICRO_BATCH_PARTITIONS = 8
MICRO_BATCHES_LEFT_OUT = 8
MICRO_BATCHES = 40
MICRO_BATCH_LIMIT_S = 40
RECORD_EVERY_S = 0.01
JSON_COLUMNS = "id bigint, carrier string, origin string, delay double, tags array<string>"


class Loads:
    """Runs the rows in one session; topics are made at their first use."""

    def __init__(self, spark: Any, address: str, records: int, directory: Path) -> None:
        self.spark = spark
        self.address = address
        self.records = records
        self._directory = directory
        self._prefix = f"spark-{uuid.uuid4().hex[:6]}"
        self._topics: dict[str, int] = {}
        self._passing: list[str] = []
        self._numbers = itertools.count()
        self._admin = barnabas.Admin(bootstrap_servers=address)

    def __enter__(self) -> Loads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._passing += self._topics
        self.tidy()
        self._admin.close()

    def tidy(self) -> None:
        """Deletes the written topics, so that disk and page cache do not fill up."""
        while self._passing:
            self._admin.delete_topics(self._passing.pop())

    # -- rows: rec/s, or ms --------------------------------------------------------------------------------------------

    def batch_read(self, how: str, size: int, partitions: int = 4) -> float:
        topic = self._values(size, partitions)
        return self._rate(topic, lambda: _to_noop(self._read(how, topic, size, partitions)))

    def available_now(self, how: str, size: int) -> float:
        topic = self._values(size, 4)
        return self._rate(topic, lambda: self._stream_to_noop(how, topic, size))

    def lag(self, how: str, gigabytes: float) -> float:
        """Measures how a stream reads a backlog of this size, which is compressed on disk."""
        topic = self._filled(f"{self._prefix}-lag", int(gigabytes * 1e9) // 1000, _values(1000), 4, "zstd")
        return self._rate(topic, lambda: self._stream_to_noop(how, topic))

    def batch_write(self, how: str, size: int, *, cheap: bool = False) -> float:
        """`lpad` costs Spark more than the rest of what it does with a row of 1 KB. A `cheap` row is a number of eight
        digits with a constant behind it."""
        from pyspark.sql import functions

        count = self._count(size)
        number = functions.lpad(functions.col("id").cast("string"), 8 if cheap else size, "x")
        if cheap:
            number = functions.concat(number, functions.lit("v" * (size - 8)))
        frame = self.spark.range(count).select(number.cast("binary").alias("value"))
        topic = self._passing_topic(4)
        began = time.perf_counter()
        self._to(frame.write.format(how), how, topic).mode("append").save()
        rate = count / (time.perf_counter() - began)
        if how != READY:
            self._check(topic, count)
        return rate

    def read_json(self, how: str) -> float:
        from pyspark.sql import functions

        topic = self._filled(f"{self._prefix}-json", self._count(100), _json_values(), 4)
        name, _, value_format = how.partition(" ")
        if value_format:
            reader = self._reader(self.spark.read, name, topic)
            frame = reader.option("valueFormat", "json").option("valueSchema", JSON_COLUMNS).load()
        else:
            parsed = functions.from_json(functions.col("value").cast("string"), JSON_COLUMNS)
            frame = self._read(name, topic).select(parsed.alias("value"))
        frame = frame.select("value.*")
        return self._rate(topic, lambda: _to_noop(frame))

    def micro_batches(self, how: str) -> float:
        """The median length of a micro-batch while a hundred records come in a second."""
        source, target = (self._passing_topic(MICRO_BATCH_PARTITIONS) for _ in range(2))
        reader = self._reader(self.spark.readStream, how, source, partitions=1)
        frame = reader.load().select("key", "value")
        query = (
            self._to(frame.writeStream.format(how), how, target).option("checkpointLocation", self._new_path()).start()
        )
        over = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(source, over), daemon=True)
        feeder.start()
        lengths: list[float] = []
        try:
            end = time.monotonic() + MICRO_BATCH_LIMIT_S
            while len(lengths) < MICRO_BATCHES and time.monotonic() < end and query.isActive:
                time.sleep(1)
                batches = [each for each in query.recentProgress if each["numInputRows"]]
                lengths = [each["durationMs"]["triggerExecution"] for each in batches[MICRO_BATCHES_LEFT_OUT:]]
            if query.exception() is not None:
                raise query.exception()
        finally:
            over.set()
            feeder.join()
            query.stop()
        return statistics.median(lengths)

    # -- Spark ---------------------------------------------------------------------------------------------------------

    def _read(self, how: str, topic: str, size: int = 100, partitions: int = 4) -> Any:
        return self._reader(self.spark.read, how, topic, size, partitions).load()

    def _reader(self, reader: Any, how: str, topic: str, size: int = 100, partitions: int = 4) -> Any:
        reader = reader.format(how)
        if how == READY:
            rows = self._topics.get(topic, 1)
            return reader.option("rows", rows).option("size", size).option("partitions", partitions)
        return (
            reader.option(SERVERS[how], self.address).option("subscribe", topic).option("startingOffsets", "earliest")
        )

    def _to(self, writer: Any, how: str, topic: str) -> Any:
        if how == READY:
            return writer
        return writer.option(SERVERS[how], self.address).option("topic", topic)

    def _stream_to_noop(self, how: str, topic: str, size: int = 1000) -> None:
        writer = self._reader(self.spark.readStream, how, topic, size).load().writeStream.format("noop")
        query = writer.trigger(availableNow=True).option("checkpointLocation", self._new_path()).start()
        query.awaitTermination()
        read = sum(each["numInputRows"] for each in query.recentProgress)
        assert read == self._topics[topic], f"{how} read {read} of {self._topics[topic]} records"

    def _rate(self, topic: str, action: Any) -> float:
        began = time.perf_counter()
        action()
        return self._topics[topic] / (time.perf_counter() - began)

    def _new_path(self) -> str:
        return str(self._directory / str(next(self._numbers)))

    # -- topics --------------------------------------------------------------------------------------------------------

    def _count(self, size: int) -> int:
        return self.records if size == 100 else self.records // 4

    def _values(self, size: int, partitions: int) -> str:
        return self._filled(f"{self._prefix}-{size}-{partitions}", self._count(size), _values(size), partitions)

    def _passing_topic(self, partitions: int) -> str:
        topic = f"{self._prefix}-passing-{next(self._numbers)}"
        self._admin.create_topics(NewTopic(topic, partitions, 1))
        self._passing.append(topic)
        return topic

    def _filled(self, topic: str, count: int, values: pa.Table, partitions: int, codec: str = "none") -> str:
        """The same number in each partition, in batches as a busy producer makes them."""
        if topic in self._topics:
            return topic
        self._admin.create_topics(NewTopic(topic, partitions, 1))
        settings = {"compression_type": codec, "batch_size": 1_000_000, "linger_ms": 5}
        with barnabas.Producer(bootstrap_servers=self.address, **settings) as producer:
            for number, start in enumerate(range(0, count, TABLE_ROWS)):
                producer.send_table(topic, values.slice(0, count - start), partition=number % partitions)
            producer.flush()
        self._topics[topic] = count
        return topic

    def _feed(self, topic: str, over: threading.Event) -> None:
        """Partition after partition, so that each micro-batch has a task for every one."""
        with barnabas.Producer(bootstrap_servers=self.address, linger_ms=0) as producer:
            for number in itertools.count():
                if over.wait(RECORD_EVERY_S):
                    return
                producer.send(topic, b"x" * 100, partition=number % MICRO_BATCH_PARTITIONS)

    def _check(self, topic: str, count: int) -> None:
        """Records of transactions have an end marker behind them, so there may be more offsets."""
        with barnabas.Consumer(bootstrap_servers=self.address) as consumer:
            parts = [(topic, part.partition) for part in consumer.partitions_for(topic)]
            written = sum(consumer.end_offsets(parts).values())
        assert count <= written < count + 1000, f"{written} offsets after {count} rows were written"


def _to_noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _values(size: int) -> pa.Table:
    return pa.table({"value": pa.array([b"%08d" % number + b"v" * (size - 8) for number in range(TABLE_ROWS)])})


def _json_values() -> pa.Table:
    carriers, origins = ("UA", "AA", "B6", "DL", "EV"), ("JFK", "LGA", "EWR")
    values = [
        {
            "id": number,
            "carrier": carriers[number % 5],
            "origin": origins[number % 3],
            "delay": number % 977 / 8,
            "tags": ["late", f"gate-{number % 40}"],
        }
        for number in range(TABLE_ROWS)
    ]
    return pa.table({"value": pa.array([json.dumps(value).encode() for value in values])})
