"""Fetch at its edges: sessions that go on while a request waits, unknown partitions, older segments, lost clients."""

import socket
import struct
import time
from collections.abc import Sequence

import pytest

from barnabas.errors import InvalidFetchSessionEpoch, UnknownTopicId, UnknownTopicOrPartition
from barnabas.network import connection
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from barnabas.testing import Broker
from broker.wire import Wire, on_loop, server_of

LONG_MS = 120_000
"""Longer than a test may take: who gets an answer did not wait for it."""


def fetch(
    *partitions: tuple[str, int, int],
    session_id: int = 0,
    epoch: int = -1,
    min_bytes: int = 1,
    wait_ms: int = LONG_MS,
    forget: Sequence[str] = (),
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    """Of (topic, partition, offset)."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic=t, partitions=[FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1 << 20)])
            for t, p, o in partitions
        ],
        forgotten_topics_data=[ForgottenTopic(topic=t, partitions=[0]) for t in forget],
    )


def produce(wire: Wire, topic: str, size: int = 100) -> None:
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * size, ())])
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    answer = wire.ask(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data), 8)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def other(broker: Broker):
    with Wire(broker) as wire:
        yield wire


def parked(broker: Broker, count: int) -> None:
    broker.wait_for(lambda: server_of(broker).purgatory.size == count, what=f"{count} parked requests")


def test_a_session_that_went_on_while_a_request_waited(broker: Broker, wire: Wire, other: Wire) -> None:
    for topic in ("t", "u"):
        broker.create_topic(topic)
    session_id = wire.ask(fetch(("t", 0, 0), ("u", 0, 0), epoch=0, wait_ms=0), 11).session_id
    wire.send(fetch(session_id=session_id, epoch=1), 11)
    parked(broker, 1)
    other.send(fetch(session_id=session_id, epoch=2, forget=["t"]), 11)
    parked(broker, 2)
    with Wire(broker) as producer:
        produce(producer, "t")
        assert wire.receive().error_code == InvalidFetchSessionEpoch.code
        produce(producer, "u")
        answer = other.receive()
    assert [topic.topic for topic in answer.responses] == ["u"]


def test_a_session_without_partitions_ends(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    before = len(server_of(broker).fetch_sessions)
    session_id = wire.ask(fetch(("t", 0, 0), epoch=0, wait_ms=0), 11).session_id
    answer = wire.ask(fetch(session_id=session_id, epoch=1, forget=["t"]), 11)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert len(server_of(broker).fetch_sessions) == before


def test_unknown_partitions_wait_with_the_known_ones(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    began = time.monotonic()
    answer = wire.ask(fetch(("t", 0, 0), ("t", 9, 0), ("nobody", 0, 0), wait_ms=200), 11)
    assert time.monotonic() - began > 0.15
    assert [p.error_code for topic in answer.responses for p in topic.partitions] == [
        0,
        UnknownTopicOrPartition.code,
        UnknownTopicOrPartition.code,
    ]


def test_unknown_partitions_alone_are_answered_at_once(wire: Wire) -> None:
    answer = wire.ask(fetch(("nobody", 0, 0)), 11)
    assert answer.responses[0].partitions[0].error_code == UnknownTopicOrPartition.code
    answer = wire.ask(fetch(("", 0, 0)), 13)
    assert answer.responses[0].partitions[0].error_code == UnknownTopicId.code


def test_a_partition_that_goes_away_ends_the_wait(broker: Broker, wire: Wire) -> None:
    for topic in ("t", "u"):
        broker.create_topic(topic)
    wire.send(fetch(("t", 0, 0), ("u", 0, 0), ("nobody", 0, 0)), 11)
    parked(broker, 1)
    broker.delete_topic("u")
    codes = {topic.topic: topic.partitions[0].error_code for topic in wire.receive().responses}
    assert codes == {"t": 0, "u": UnknownTopicOrPartition.code, "nobody": UnknownTopicOrPartition.code}


def test_min_bytes_does_not_wait_at_the_end_of_an_older_segment(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t", configs={"segment.bytes": "1000"})
    for _ in range(8):
        produce(wire, "t", 300)
    answer = wire.ask(fetch(("t", 0, 0), min_bytes=100_000), 11)
    assert 0 < len(answer.responses[0].partitions[0].records) <= 1000


def test_min_bytes_waits_in_the_newest_segment(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    produce(wire, "t")
    wire.send(fetch(("t", 0, 0), min_bytes=300), 11)
    parked(broker, 1)
    with Wire(broker) as producer:
        produce(producer, "t", 300)
    assert len(wire.receive().responses[0].partitions[0].records) > 400


def test_of_many_partitions_only_what_changed_is_read(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t", 50)
    wire.send(fetch(*[("t", index, 0) for index in range(50)], min_bytes=1000), 11)
    parked(broker, 1)
    partition = server_of(broker).replica_manager.get("t", 0)
    waiting = next(iter(partition.watchers))._completion
    looks = []
    read_partition = type(waiting)._read_partition
    with Wire(broker) as producer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(waiting), "_read_partition", lambda self, *given: looks.append(1) or read_partition(self, *given)
        )
        for _ in range(5):
            produce(producer, "t")
        assert len(looks) <= 5
        produce(producer, "t", 1000)
        answer = wire.receive()
    assert sum(len(p.records or b"") for topic in answer.responses for p in topic.partitions) > 1500


def test_who_leaves_is_not_waited_for_without_bound(broker: Broker, monkeypatch) -> None:
    monkeypatch.setattr(connection, "HALF_CLOSED_MAX_S", 0.05)
    broker.create_topic("t")
    for _ in range(5):
        with Wire(broker) as leaving:
            leaving.send(fetch(("t", 0, 0), wait_ms=2**31 - 1), 11)
            parked(broker, 1)
            leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
        parked(broker, 0)
    assert not server_of(broker).replica_manager.get("t", 0).watchers


@pytest.mark.source
def test_a_bug_in_a_parked_request_ends_its_connection(broker: Broker, wire: Wire, monkeypatch) -> None:
    broker.create_topic("t")
    wire.send(fetch(("t", 0, 0)), 11)
    parked(broker, 1)
    partition = server_of(broker).replica_manager.get("t", 0)
    operation = next(iter(partition.watchers))
    on_loop(broker, lambda: setattr(operation._completion, "_wanted", None))
    with Wire(broker) as producer:
        produce(producer, "t")
        assert wire.is_closed()
        produce(producer, "t")
    parked(broker, 0)


def test_no_part_of_a_batch_that_does_not_fit(broker: Broker, wire: Wire) -> None:
    for topic in ("t", "u"):
        broker.create_topic(topic)
        produce(wire, topic, 500)
    answer = wire.ask(fetch(("t", 0, 0), ("u", 0, 0), max_bytes=600), 11)
    sizes = {topic.topic: len(topic.partitions[0].records or b"") for topic in answer.responses}
    assert sizes["t"] > 500
    assert sizes["u"] == 0


def test_an_epoch_that_nobody_knows_is_out_of_range(broker: Broker, wire: Wire) -> None:
    broker.create_topic("t")
    produce(wire, "t")
    request = fetch(("t", 0, 0))
    request.topics[0].partitions[0].last_fetched_epoch = 5
    assert wire.ask(request, 12).responses[0].partitions[0].error_code == 1
