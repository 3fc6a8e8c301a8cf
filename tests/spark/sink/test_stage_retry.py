"""A write whose stage Spark begins anew, because what was shuffled is gone, while a task of the first attempt lives on:
tasks of both attempts are the first of their partition."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.testing import Broker

pytest.importorskip("pyspark")

from pyspark import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # tasks cannot import it

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from barnabas.spark.sessions import session

    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.sql.adaptive.enabled": "false",
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
    }
    found = session("stage-retry", master="local[2]", settings=settings)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.two.phase.commit.enable": "true", "auto.create.topics.enable": "false"}
    with Broker(settings=settings) as broker:
        yield broker


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} does not come"
        time.sleep(0.02)


def lost_meanwhile(directory: Path, shuffled: Path, servers: str, topic: str) -> Any:
    """What tasks of three partitions do with their rows. The first attempt at partition 0 waits; partition 1 takes away
    what was shuffled, so that partition 2 fails and the stage begins anew. When partition 0 has been written there,
    its first attempt goes on, and partition 2 waits until that has written, too."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        found = list(batches)
        count = sum(each.num_rows for each in found)
        if part == 0 and not (directory / "first").exists():
            (directory / "first").write_text(str(context.attemptNumber()))
            wait_for(directory / "go")
        elif part == 0:
            (directory / "second").write_text(str(context.attemptNumber()))
        elif part == 1:
            wait_for(directory / "first")
            for file in shuffled.rglob("shuffle_*"):
                file.unlink(missing_ok=True)
        else:
            (directory / "go").touch()
            wait_until_written(2 * int((directory / "count-0").read_text()) + int((directory / "count-1").read_text()))
        (directory / f"count-{part}").write_text(str(count))
        yield from found

    def wait_until_written(least: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        with barnabas.Consumer(bootstrap_servers=servers) as consumer:
            while sum(consumer.end_offsets([(topic, 0)]).values()) < least:
                assert time.monotonic() < deadline, "the first attempt does not write"
                time.sleep(0.02)

    return rows


def test_a_task_that_outlives_its_stage_disturbs_nobody(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic)
    shuffled = Path(spark.conf.get("spark.local.dir"))
    servers = broker.bootstrap_servers
    shuffled_rows = spark.range(0, 300, 1, 2).repartition(3, "id").selectExpr("cast(id as string) as value")
    frame = shuffled_rows.mapInArrow(lost_meanwhile(tmp_path, shuffled, servers, topic), "value string")
    writer = frame.write.format("barnabas").mode("append").option("bootstrap.servers", servers)
    writer.option("topic", topic).save()
    assert [(tmp_path / name).read_text() for name in ("first", "second")] == ["0", "0"]
    with barnabas.Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])
        values = []
        while any(consumer.position(where) < offset for where, offset in end.items()):
            values += [int(record.value) for record in consumer.poll(1)]
    assert sorted(values) == list(range(300))
    with barnabas.Admin(bootstrap_servers=servers) as admin:
        assert admin.list_transactions(states=["Ongoing"]) == []
