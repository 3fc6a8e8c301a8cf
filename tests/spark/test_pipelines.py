"""The templates of `barnabas pipeline init`, as their users get them."""

import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.pipeline.project import create, load
from barnabas.testing import Broker

from .conftest import Writer, has_delta

pytest.importorskip("pyspark")


@pytest.fixture
def play(spark: Any, broker: Broker, tmp_path: Path) -> Callable[..., None]:
    """Run a template to the end of what is there."""

    def run(template: str, **settings: Any) -> None:
        directory = tmp_path / template
        if not directory.exists():
            create(directory, template, broker.bootstrap_servers)
        project = load(directory)
        project.settings.update(settings)
        for stage in project.stages(spark, {"availableNow": True}):
            for query in stage:
                query.awaitTermination(120)
                assert query.exception() is None, query.exception()

    return run


def committed(broker: Broker, topic: str) -> list[Any]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    with (
        barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        barnabas.Consumer(settings, isolation_level="read_committed") as consumer,
    ):
        partitions = [(topic, number) for number in admin.describe_topics(topic)[topic].partitions]
        ends = {where: each.offset for where, each in admin.list_offsets(dict.fromkeys(partitions, "latest")).items()}
        consumer.assign(ends)
        found = []
        while any(consumer.position(where) < end for where, end in ends.items()):
            found += consumer.poll(10)
    return found


def test_archive_and_back(
    play: Callable[..., None], broker: Broker, writer: Writer, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 2)
    broker.create_topic(f"{topic}-again", 2)
    archive = str(tmp_path / "files")
    for numbers in (range(10), range(10, 15)):
        writer.write(topic, 0, numbers, key=b"a", headers={"h": b"1"})
        play("archive", source=topic, archive=archive)
    for _ in range(2):  # the second time it is there already
        play("backfill", source=topic, archive=archive, target=f"{topic}-again")
    records = committed(broker, f"{topic}-again")
    assert [record.value for record in records] == [b"%d" % number for number in range(15)]
    assert {(record.key, tuple(record.headers)) for record in records} == {(b"a", (("h", b"1"),))}
    play("backfill", source=topic, archive=archive, target=f"{topic}-again", version="2", from_day="2999-01-01")
    assert len(committed(broker, f"{topic}-again")) == 15, "no day is so late"


@pytest.mark.skipif(not has_delta(), reason="Delta is there for pyspark 4.2: make test-spark PYSPARK=4.2.0")
def test_delta_tables(
    play: Callable[..., None], spark: Any, broker: Broker, writer: Writer, topic: str, tmp_path: Path
) -> None:
    broker.create_topics([topic, f"{topic}-again"])
    archive, table = str(tmp_path / "files"), str(tmp_path / "table")
    changes = [("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1"), ("c", "2")]
    for some in (changes[:2], changes[2:]):
        for key, value in some:
            broker.produce(topic, value, key=key)
        play("archive", source=topic, archive=archive, format="delta")
        play("merge", source=topic, table=table)
    play("backfill", source=topic, archive=archive, format="delta", target=f"{topic}-again")
    assert [record.value for record in committed(broker, f"{topic}-again")] == [b"1", b"1", b"2", None, b"1", b"2"]
    rows = spark.read.format("delta").load(table).orderBy("key").collect()
    assert [(row.key, row.value, row.offset) for row in rows] == [(b"a", b"2", 2), (b"c", b"2", 5)]


def test_copy(play: Callable[..., None], broker: Broker, writer: Writer, topic: str) -> None:
    broker.create_topic(topic)
    broker.create_topic(f"{topic}-copy")
    for numbers in (range(5), range(5, 8)):
        writer.write(topic, 0, numbers)
        play("copy", source=topic, target=f"{topic}-copy")
    assert [record.value for record in committed(broker, f"{topic}-copy")] == [b"%d" % number for number in range(8)]


def test_change_feed(play: Callable[..., None], spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic, 2)
    table = tmp_path / "table"
    feeds = [{b"a": b"1", b"b": b"1"}, {b"a": b"2", b"c": b"1"}, {b"b": None}]
    for feed in feeds:
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for key, value in feed.items():
                producer.send(topic, value, key=key)
        play("cdc", source=topic, table=str(table))
    snapshot = import_module("barnabas.pipeline.templates.cdc").snapshot
    assert {bytes(row.key): bytes(row.value) for row in snapshot(spark, table).collect()} == {b"a": b"2", b"c": b"1"}
    before = snapshot(spark, table, below=2)
    assert {bytes(row.key) for row in before.collect()} == {b"a", b"b", b"c"}


def test_dead_letters(play: Callable[..., None], broker: Broker, topic: str) -> None:
    for name in (topic, f"{topic}-good", f"{topic}-dead"):
        broker.create_topic(name)
    values = [b'{"id": 1, "total": 2.5}', b"{no json", b'{"total": 1.0}', None, b'{"id": "x"}', b'{"id": 2}']
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key=b"k")
    play("dead-letters", source=topic, target=f"{topic}-good", dead_letters=f"{topic}-dead")
    assert [record.value for record in committed(broker, f"{topic}-good")] == [values[0], values[5]]
    dead = [(record.value, dict(record.headers)) for record in committed(broker, f"{topic}-dead")]
    assert [value for value, _ in dead] == values[1:5]
    assert [headers["why"] for _, headers in dead] == [
        b"it is no JSON of the right form",
        b"id is missing",
        b"there is no value",
        b"it is no JSON of the right form",
    ]
    assert dead[0][1] == {"why": dead[0][1]["why"], "topic": topic.encode(), "partition": b"0", "offset": b"1"}


def test_bronze_silver_gold(play: Callable[..., None], spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    topics = {"source": topic, "silver": f"{topic}-silver", "gold": f"{topic}-gold"}
    for name in topics.values():
        broker.create_topic(name)
    hour_ms = 3_600_000
    this_hour_ms = time.time_ns() // 1_000_000 // hour_ms * hour_ms  # older records would be deleted by retention
    for _ in range(2):
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(6):
                value = {"id": number, "total": 1.5, "customer": "ab"[number % 2]} if number < 5 else {"id": 5}
                producer.send(topic, json.dumps(value).encode(), timestamp=this_hour_ms)
        play("bronze-silver-gold", bronze=str(tmp_path / "bronze"), name="test", **topics)  # gold has it by one run
    assert spark.read.parquet(str(tmp_path / "bronze")).count() == 12
    assert len(committed(broker, topics["silver"])) == 10
    gold = {record.key: json.loads(record.value) for record in committed(broker, topics["gold"])}
    assert {key.split(b"|")[0]: (row["orders"], row["total"]) for key, row in gold.items()} == {
        b"a": (6, 9.0),
        b"b": (4, 6.0),
    }
