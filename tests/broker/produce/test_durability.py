"""durability=fsync acknowledges what is on the disk; page-cache what is in the log."""

import os
import threading
from collections.abc import Iterator

import pytest

from barnabas.log.directories.disk import Disk
from barnabas.testing import Broker
from broker.sent_requests import batch, fetch, produce, values
from broker.wire import Wire, server_of


class Gate:
    """Holds every fsync until it is opened; counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting = 0
        self.synced = 0
        monkeypatch.setattr(Disk, "fdatasync", staticmethod(self._sync))

    def _sync(self, fd: int) -> None:
        self.waiting += 1
        assert self.open.wait(60)
        self.waiting -= 1
        self.synced += 1
        os.fdatasync(fd)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


@pytest.mark.parametrize("acks", [1, -1])
def test_no_acknowledgement_before_the_disk_has_it(gate: Gate, acks: int) -> None:
    with Broker(settings={"durability": "fsync"}) as broker, Wire(broker) as wire, Wire(broker) as reader:
        broker.create_topic("t")
        wire.ask(produce(broker, {0: batch(b"warm")}, acks=acks), 12)
        gate.open.clear()
        wire.send(produce(broker, {0: batch(b"x")}, acks=acks), 12)
        broker.wait_for(lambda: gate.waiting, what="the fsync")
        assert wire.is_silent()
        seen = reader.ask(fetch(broker, {0: 0}), 12).responses[0].partitions[0]
        assert values(seen.records) == [b"warm"], "consumers see what is committed"
        assert seen.high_watermark == 1
        gate.open.set()
        result = wire.receive().responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (0, 1)
        assert broker.end_offsets("t") == [2]


def test_writes_that_come_during_an_fsync_share_the_next_one(gate: Gate) -> None:
    with Broker(settings={"durability": "fsync"}) as broker:
        broker.create_topic("t")
        wires = [Wire(broker) for _ in range(20)]
        wires[0].ask(produce(broker, {0: batch(b"warm")}), 12)
        gate.open.clear()
        before = gate.synced
        wires[0].send(produce(broker, {0: batch(b"first")}), 12)
        broker.wait_for(lambda: gate.waiting, what="the fsync")
        for wire in wires[1:]:
            wire.send(produce(broker, {0: batch(b"x")}), 12)
        log_end = server_of(broker).replica_manager.leader_of("t", 0).log
        broker.wait_for(lambda: log_end.log_end_offset == 21, what="all appends")
        gate.open.set()
        for wire in wires:
            assert wire.receive().responses[0].partition_responses[0].error_code == 0
            wire.close()
        assert gate.synced - before <= 3


def test_a_request_that_the_disk_keeps_waiting_times_out(gate: Gate) -> None:
    with Broker(settings={"durability": "fsync"}) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        wire.ask(produce(broker, {0: batch(b"warm")}), 12)
        gate.open.clear()
        result = wire.ask(produce(broker, {0: batch(b"x")}, timeout_ms=50), 12).responses[0].partition_responses[0]
        assert result.error_code == 7  # REQUEST_TIMED_OUT
        gate.open.set()


def test_acks_0_waits_for_nothing(gate: Gate) -> None:
    with Broker(settings={"durability": "fsync"}) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        wire.ask(produce(broker, {0: batch(b"warm")}), 12)
        gate.open.clear()
        from broker.wire import frame

        wire.socket.sendall(frame(produce(broker, {0: batch(b"x")}, acks=0), 12))
        assert wire.ask(fetch(broker, {0: 0}), 12).error_code == 0, "later requests are served"
        gate.open.set()


def test_offset_commits_are_on_the_disk_too(gate: Gate) -> None:
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
    from barnabas.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    with Broker(settings={"durability": "fsync"}) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        wire.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
        assert wire.ask(request, 8).topics[0].partitions[0].error_code == 0
        gate.open.clear()
        wire.send(request, 8)
        broker.wait_for(lambda: gate.waiting, what="the fsync")
        assert wire.is_silent()
        gate.open.set()
        assert wire.receive().topics[0].partitions[0].error_code == 0


def test_the_page_cache_is_enough_by_default(gate: Gate) -> None:
    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        gate.open.clear()
        for _ in range(10):
            assert wire.ask(produce(broker, {0: batch(b"x")}, acks=-1), 12).responses[0].partition_responses[0]
        assert gate.synced == 0
        gate.open.set()
