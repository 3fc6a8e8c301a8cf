"""Batches that take long to validate: in a thread, without a change of the order, and without others who wait."""

import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.handlers.records import produce as handler
from barnabas.broker.produce.batch_validator import BatchToValidate, ValidationResult
from barnabas.errors import NotEnoughReplicas, NotLeaderOrFollower
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.testing import Broker
from broker.followers import FOLLOWER, elect
from broker.sent_requests import batch, produce
from broker.wire import Wire, on_loop, server_of

LARGE = bytes(3_000_000)


@pytest.fixture(autouse=True)
def topic(broker: Broker) -> None:
    broker.create_topic("t", partitions=3)


class Gate:
    """Lets the threads on when the test says so."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    validate = BatchToValidate.validate

    def gated(heavy: BatchToValidate) -> ValidationResult:
        gate.wait()
        return validate(heavy)

    monkeypatch.setattr(BatchToValidate, "validate", gated)
    yield gate
    gate.opened.set()


def heavy(name: bytes = b"large") -> bytes:
    return batch(name, LARGE, compression="zstd")


def stored(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


def results(wire: Wire) -> list[tuple[int, int, int]]:
    answer = wire.receive()
    return [
        (result.index, result.error_code, result.base_offset)
        for topic in answer.responses
        for result in topic.partition_responses
    ]


def test_others_are_served_while_a_thread_validates_and_the_connection_keeps_its_order(
    broker: Broker, wire: Wire, gate: Gate
) -> None:
    wire.send(produce(broker, {0: batch(b"first")}), 12)
    wire.send(produce(broker, {0: heavy()}, acks=-1), 12)
    for name in (b"behind", b"last"):
        wire.send(produce(broker, {0: batch(name)}), 12)
    assert gate.reached.wait(60)
    with Wire(broker) as other:
        assert other.ask(MetadataRequest(topics=[]), 12).brokers
        other.send(produce(broker, {0: batch(b"other")}), 12)
        assert results(other) == [(0, 0, 1)], "nobody's order but the connection's own is kept"
    gate.opened.set()
    assert [results(wire) for _ in range(4)] == [[(0, 0, 0)], [(0, 0, 2)], [(0, 0, 4)], [(0, 0, 5)]]
    assert stored(broker) == [b"first", b"other", b"large", LARGE, b"behind", b"last"]


def test_partitions_of_one_request_are_answered_together_and_fail_alone(broker: Broker, wire: Wire) -> None:
    torn = bytearray(heavy())
    torn[-1] ^= 1
    recrced = batch(LARGE, compression="gzip")
    wire.send(produce(broker, [(0, heavy()), (1, batch(b"small")), (2, recrced), (9, heavy()), (1, bytes(torn))]), 12)
    assert results(wire) == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (9, 3, -1), (1, 2, -1)]


@pytest.mark.source
def test_what_comes_after_compressed_batches_that_took_long_goes_to_the_thread(
    broker: Broker, wire: Wire, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "_AT_ONCE_S", 0)
    wire.send(produce(broker, {0: batch(b"a", compression="lz4"), 1: batch(b"plain")}), 12)
    assert gate.reached.wait(60)
    gate.opened.set()
    assert results(wire) == [(0, 0, 0), (1, 0, 0)]


def test_without_acks_a_heavy_batch_is_appended_though_its_client_has_gone(broker: Broker, gate: Gate) -> None:
    with Wire(broker) as client, Wire(broker) as other:
        client.send(produce(broker, {0: heavy()}, acks=0), 12)
        client.send(produce(broker, {0: batch(b"behind")}, acks=0), 12)
        assert gate.reached.wait(60)
        client.close()
        gate.opened.set()
        while broker.end_offsets("t")[0] < 3:
            assert other.ask(MetadataRequest(topics=[]), 12).brokers
    assert stored(broker) == [b"large", LARGE, b"behind"]


def test_a_topic_that_is_deleted_meanwhile_is_not_written_to(broker: Broker, wire: Wire, gate: Gate) -> None:
    wire.send(produce(broker, {0: heavy()}), 12)
    assert gate.reached.wait(60)
    broker.delete_topic("t")
    gate.opened.set()
    assert results(wire) == [(0, 3, -1)]


def test_a_batch_behind_one_whose_leader_went_while_a_thread_validated_waits_for_that(
    broker: Broker, wire: Wire, gate: Gate
) -> None:
    def send(sequence: int, *, compression: str = "none") -> None:
        value = b"x" if compression == "none" else LARGE
        records = batch(value, compression=compression, producer_id=7, producer_epoch=0, base_sequence=sequence)
        wire.send(produce(broker, {0: records}, acks=-1), 12)

    partition = server_of(broker).replica_manager.leader_of("t", 0)
    me = partition.leader_id
    send(0, compression="zstd")
    assert gate.reached.wait(60)
    on_loop(broker, lambda: elect(partition, FOLLOWER))
    gate.opened.set()
    assert results(wire) == [(0, NotLeaderOrFollower.code, -1)]
    on_loop(broker, lambda: elect(partition, me))
    for sequence in (1, 0, 1):
        send(sequence)
    assert [results(wire)[0][1] for _ in range(3)] == [NotEnoughReplicas.code, 0, 0]


def test_a_broker_stops_while_a_thread_validates(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as stopping, Wire(stopping) as client:
        stopping.create_topic("t")
        client.send(produce(stopping, {0: heavy()}), 12)
        assert gate.reached.wait(60)
        gate.opened.set()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
