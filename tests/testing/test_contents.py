"""Records of a partition, read and appended past the network."""

import pytest

import barnabas
from barnabas.errors import MessageTooLarge, NotLeaderOrFollower, UnknownTopicOrPartition, UsageError
from barnabas.records.builder import build_control_batch
from barnabas.testing import Broker
from broker.wire import on_loop, server_of
from testing.other_clients import send

confluent = pytest.importorskip("confluent_kafka")


def test_records_without_a_client(broker: Broker) -> None:
    broker.create_topic("t", partitions=3)
    placed = broker.produce("t", "text", key="k", headers={"h": "1", "none": None}, timestamp=1_700_000_000_000)
    (record,) = broker.records("t")
    assert (record.topic, record.partition, record.offset) == placed[:3] == ("t", placed.partition, 0)
    assert (record.key, record.value, record.timestamp) == (b"k", b"text", 1_700_000_000_000)
    assert record.headers == (("h", b"1"), ("none", None))
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert producer.send("t", b"x", key=b"k").result(60).partition == placed.partition
    broker.produce("t", None, key=b"gone", partition=2)
    assert broker.records("t", 2)[-1].value is None
    broker.faults.error("PRODUCE", NotLeaderOrFollower, times=None)
    assert broker.produce("t", b"past the faults").partition == 0
    with pytest.raises(UnknownTopicOrPartition, match="topic gone does not exist; there are t"):
        broker.produce("gone", b"x")
    with pytest.raises(UnknownTopicOrPartition):
        broker.produce("t", b"x", partition=3)
    with pytest.raises(MessageTooLarge):
        broker.produce("t", bytes(2_000_000))
    with pytest.raises(UsageError, match="value is bytes, text or None, not int"):
        broker.produce("t", 7)  # type: ignore[arg-type]


def test_records_are_decoded(broker: Broker) -> None:
    broker.create_topic("t", partitions=2)
    send(broker, "t", b"a", b"b", key=b"k", headers=[("h", b"1")], partition=0, timestamp=1_700_000_000_000)
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
    for number in range(1000):
        producer.produce("t", b"%d" % number, partition=1)
    assert producer.flush(60) == 0
    first, second = broker.records("t", 0)
    assert (first.offset, first.timestamp, first.key, first.value) == (0, 1_700_000_000_000, b"k", b"a")
    assert tuple(first.headers) == (("h", b"1"),)
    assert second.offset == 1
    assert [record.value for record in broker.records("t", 1)] == [b"%d" % number for number in range(1000)]
    assert len(broker.records("t")) == 1002


def test_records_leave_control_records_out(broker: Broker) -> None:
    broker.create_topic("t")

    def append() -> None:
        log = server_of(broker).replica_manager.leader_of("t", 0).log
        log.append_as_follower(
            build_control_batch(committed=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=1)
        )
        log.update_high_watermark(log.log_end_offset)

    on_loop(broker, append)
    assert broker.end_offsets("t") == [1]
    assert broker.records("t") == []
