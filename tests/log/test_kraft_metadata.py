"""Topics and settings from Kafka's own registry."""

from pathlib import Path
from uuid import UUID

import pytest

from barnabas.errors import CorruptMessage
from barnabas.log.kraft_metadata import KraftMetadata, read_kraft_metadata
from barnabas.protocol.codec import MalformedMessage
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


def text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def test_records_of_topics_and_settings_replace_each_other() -> None:
    metadata, one, two = KraftMetadata(), UUID(int=1), UUID(int=2)

    def replay(kind: int, body: bytes) -> None:
        metadata.replay(bytes([1, kind, 0]) + body + b"\0")

    for name, topic_id in (("t", one), ("u", two)):
        replay(2, text(name) + topic_id.bytes)
        replay(3, (0).to_bytes(4, "big") + topic_id.bytes + bytes([4]))
        replay(4, b"\2" + text(name) + text("retention.ms") + text("5"))
    replay(4, b"\4" + text("") + text("log.retention.ms") + text("7"))
    replay(4, b"\x63" + text("x") + text("y") + text("z"))  # the setting of a kind that is not known
    replay(200, b"whatever")
    assert metadata.topic_names == {one: "t", two: "u"}
    assert metadata.partitions == {one: {0: 3}, two: {0: 3}}
    replay(4, b"\4" + text("") + text("log.retention.ms") + b"\0")
    replay(9, one.bytes)
    assert metadata.topic_names == {two: "u"}
    assert metadata.partitions == {two: {0: 3}}
    assert metadata.topic_configs == {"u": {"retention.ms": "5"}}
    assert metadata.broker_configs == {"": {}}
    replay(15, bytes(12) + (3000).to_bytes(8, "big"))
    assert metadata.next_producer_id == 3000
    with pytest.raises(MalformedMessage):
        metadata.replay(b"\1\2\0\x7fshort")
