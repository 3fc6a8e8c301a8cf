"""A copy of a data directory that the tests read."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.spark.segments.file_ranges import FileRange
from barnabas.spark.segments.file_reader import read_range
from barnabas.spark.segments.segment_files import SegmentFile, find_segments
from barnabas.spark.source.data_loss import OnLoss
from barnabas.testing import Broker

SMALL = {"segment.bytes": "20000", "index.interval.bytes": "500"}
PAD = b"." * 60


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a running broker's directory: `orders` with two partitions and several segments each, `mixed` with
    transactions, one of them open."""
    path = tmp_path_factory.mktemp("data")
    with Broker(data_dir=str(path / "live")) as broker:
        broker.create_topic("orders", 2, configs=SMALL)
        broker.create_topic("mixed", configs=SMALL)
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as producer:
            for number in range(2000):
                producer.send("orders", b"value-%d" % number + PAD, key=b"%d" % number, partition=number % 2)
        with barnabas.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="t", batch_size=1000
        ) as producer:
            _write_transactions(producer)
            shutil.copytree(path / "live", path / "copy")
    return path / "copy"


def _write_transactions(producer: barnabas.Producer) -> None:
    """Committed and aborted ones in turn over several segments; the last one stays open."""
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for _ in range(20):
            producer.send("mixed", b"%d " % number + PAD)
        producer.flush()
        if number < 29:
            producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction()


def whole_file(file: SegmentFile, **changes: Any) -> FileRange:
    return FileRange(file, file.base_offset, file.next_base_offset)._replace(**changes)


def offsets(ranges: list[FileRange], on_data_loss: str = "fail") -> list[int]:
    return [
        o
        for each in ranges
        for batch in read_range(each, OnLoss(on_data_loss), headers=False)
        for o in batch["offset"].to_pylist()
    ]


def files_of(data: Path, name: str) -> list[SegmentFile]:
    return find_segments(str(data / name))
