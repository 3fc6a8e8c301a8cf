"""The tasks of a read, without Spark: ranges, and offsets that are gone meanwhile."""

from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import barnabas
from barnabas.errors import BarnabasError
from barnabas.spark.source.data_loss import DataLoss, OnLoss
from barnabas.spark.source.planning import OffsetRange
from barnabas.spark.source.schema import Columns, record_schema
from barnabas.spark.source.tasks import SourceTaskConfig, read_ranges
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from spark.conftest import Writer


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is no worker of Spark's, and stays as it is."""
    monkeypatch.setattr("barnabas.spark.source.tasks.prepare_worker", lambda: None)


@pytest.fixture
def filled(broker: Broker, topic: str, writer: Writer) -> str:
    """Two partitions of ten records."""
    broker.create_topic(topic, partitions=2)
    for partition in (0, 1):
        writer.write(topic, partition, range(10))
    return topic


def read(broker: Broker, topic: str, *ranges: tuple[int, int, int], kind: str = "fail") -> list[tuple[int, int, bytes]]:
    columns = Columns(record_schema(headers=False))  # type: ignore[arg-type]
    config = SourceTaskConfig({"bootstrap.servers": broker.bootstrap_servers}, OnLoss(kind), 60_000, columns)
    wanted = [OffsetRange(TopicPartition(topic, partition), start, end) for partition, start, end in ranges]
    found: list[dict[str, Any]] = [row for batch in read_ranges(config, wanted) for row in batch.to_pylist()]
    return [(row["partition"], row["offset"], row["value"]) for row in found]


def test_a_task_reads_its_ranges_one_after_the_other(broker: Broker, filled: str) -> None:
    assert read(broker, filled, (1, 8, 10), (0, 2, 4), (0, 7, 7)) == [
        *((1, 8, b"8"), (1, 9, b"9")),
        *((0, 2, b"2"), (0, 3, b"3")),
    ]


def test_offsets_that_are_gone_end_a_read_or_are_left_out(broker: Broker, filled: str) -> None:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({(filled, 0): 6})
    with pytest.raises(DataLoss, match="the log begins at 6 now"):
        read(broker, filled, (0, 3, 9))
    assert [offset for _, offset, _ in read(broker, filled, (0, 3, 9), kind="skip")] == [6, 7, 8]
    assert read(broker, filled, (0, 1, 5), kind="skip") == []
    with pytest.raises(BarnabasError, match="the log ends at 10 now"):
        read(broker, filled, (1, 12, 15))
    assert read(broker, filled, (1, 12, 15), kind="skip") == []
