"""Topics and settings from Kafka's own registry."""

from pathlib import Path

import pytest

from barnabas.errors import CorruptMessage
from barnabas.log.kraft_metadata import read_kraft_metadata
from barnabas.records.batch import iter_batches
from barnabas.records.builder import build_batch
from barnabas.records.reader import read_records
from broker.kafka_data import METADATA
from broker.kafka_data import data as data


def test_a_snapshot_and_the_log_behind_it(data: Path) -> None:
    """As Kafka leaves them once it has removed the log's beginning."""
    whole = read_kraft_metadata([str(data)])
    assert whole is not None
    log = data / METADATA / f"{0:020}.log"
    batches = [bytes(batch) for _, batch in iter_batches(log.read_bytes())]
    half = len(batches) // 2
    start = next(iter_batches(batches[half]))[0].base_offset
    records = [r for batch in batches[:half] for r in read_records(batch)]
    snapshot = data / METADATA / f"{start:020}-{1:010}.checkpoint"
    snapshot.write_bytes(build_batch(records))
    (data / METADATA / f"{start:020}.log").write_bytes(b"".join(batches[half:]))
    log.unlink()
    read = read_kraft_metadata([str(data.parent), str(data)])
    assert read is not None
    assert vars(read) == vars(whole)
    assert sorted(read.topic_names.values()) == [
        "__consumer_offsets",
        "__transaction_state",
        "flights",
        "plain",
        "ports",
    ]
    snapshot.unlink()
    with pytest.raises(CorruptMessage, match="lacks the records before"):
        read_kraft_metadata([str(data)])
