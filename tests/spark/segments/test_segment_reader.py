"""Log directories read by a real Spark session, without a broker."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    with Broker(data_dir=str(path / "live")) as broker:
        broker.create_topic("orders", 2, configs={"segment.bytes": "20000"})
        broker.create_topic("paid")
        settings = {"bootstrap_servers": broker.bootstrap_servers, "batch_size": 1000}
        with barnabas.Producer(settings) as producer:
            for number in range(1000):
                value = json.dumps({"id": number, "text": "." * 40}).encode()
                producer.send("orders", value, partition=number % 2, headers=[("n", b"%d" % number)])
        with barnabas.Producer(settings, transactional_id="t") as producer:
            producer.init_transactions()
            for end in (producer.abort_transaction, producer.commit_transaction, None):
                producer.begin_transaction()
                producer.send("paid", b"x")
                producer.flush()
                if end is not None:
                    end()
            shutil.copytree(path / "live", path / "copy")
    return path / "copy"


@pytest.fixture
def read(spark: Any, data: Path) -> Any:
    def load(path: str = "", **options: Any) -> Any:
        reader = spark.read.format("barnabas").option("segments", f"{data}/{path}".rstrip("/"))
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader

    return load


def refused(frame: Any) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        frame.load().collect()
    return str(caught.value)


def test_all_that_is_there(read: Any, data: Path) -> None:
    found = read(subscribe="orders", valueFormat="json", includeHeaders=True).load()
    assert found.rdd.getNumPartitions() == len(list(data.glob("orders-*/*.log"))) > 4
    rows = found.collect()
    assert sorted(row.value.id for row in rows) == list(range(1000))
    assert all(row.partition == row.value.id % 2 and row.offset == row.value.id // 2 for row in rows)
    assert all(row.headers[0].value == b"%d" % row.value.id for row in rows)
    assert read().load().groupBy("topic").count().count() == 2
    assert read("orders-1").load().count() == 500


def test_files_in_several_tasks(read: Any) -> None:
    whole, cut = read().load(), read(minPartitions=20).load()
    assert cut.rdd.getNumPartitions() >= 20 > whole.rdd.getNumPartitions()
    assert sorted(cut.collect()) == sorted(whole.collect())


def test_transactions(read: Any) -> None:
    assert [row.offset for row in read("paid-0").load().orderBy("offset").collect()] == [0, 2, 4]
    committed = read("paid-0", isolationLevel="read_committed").load()
    assert [row.offset for row in committed.collect()] == [2]


@pytest.mark.parametrize("by_us", [True, False])
def test_conditions(read: Any, spark: Any, by_us: bool) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)

    def frame() -> Any:
        return read(filterPushdown=by_us).load()

    some = frame().where("topic = 'orders' AND partition = 1 AND offset BETWEEN 230 AND 240")
    assert sorted(row.offset for row in some.collect()) == list(range(230, 241))
    if by_us:
        assert some.rdd.getNumPartitions() <= 2
    assert frame().where("timestamp > timestamp_millis(4000000000000)").count() == 0
    assert frame().where("timestamp > timestamp_millis(0) AND topic LIKE 'pa%'").count() == 3


def test_what_is_wrong_is_named(read: Any, spark: Any, data: Path) -> None:
    from pyspark.errors import PySparkException

    assert "nowhere does not exist here" in refused(read("nowhere"))
    assert "without a broker" in refused(read(bootstrap__servers="localhost:9092"))
    assert "option startingoffsets has no effect with segments" in refused(read(startingOffsets="earliest"))
    assert "there is no log of the topics" in refused(read(subscribe="order"))
    stream = spark.readStream.format("barnabas").option("segments", str(data)).load()
    with pytest.raises(PySparkException, match="option segments is for batch reads"):
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def test_damage(read: Any, data: Path) -> None:
    damaged = data.parent / "damaged" / "orders-0"
    shutil.copytree(data / "orders-0", damaged)
    file = sorted(damaged.glob("*.log"))[0]
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    assert f"{file}, byte 0: " in refused(read("../damaged"))
    left = read("../damaged", onDataLoss="warn").load().count()
    assert 0 < left < 500
