"""A broker killed at chosen moments of a transaction: when it is decided and has no end marker; when its client has
prepared it for a two-phase commit (KIP-939)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import build_batch
from barnabas.records.record import Record
from broker.wire import Wire
from workload import create_topic, read, wait_until_closed

LIMIT_S = 60
TRANSACTION = 1  # a key type
PARTITIONS = 2
ID = "copier"
#: A broker whose end markers never leave: it is always at the moment between the decision and its consequences.
WITHOUT_MARKERS = """
from barnabas.broker.coordinators import marker_channel
marker_channel.write_markers = lambda broker, marker, reply: None
from barnabas.__main__ import main
main()
"""
SETTINGS = ("transaction.two.phase.commit.enable=true", "transaction.state.log.num.partitions=4")


class Victim:
    """A broker process on one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready = directory / "ready"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self, *, markers: bool = True) -> None:
        self._ready.unlink(missing_ok=True)
        program = ["-m", "barnabas"] if markers else ["-c", WITHOUT_MARKERS]
        arguments = ["--data-dir", str(self._directory / "data"), "--listen", "127.0.0.1:0"]
        arguments += ["--ready-file", str(self._ready)]
        for setting in SETTINGS:
            arguments += ["--set", setting]
        env = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        with (self._directory / "out.log").open("ab") as out:
            command = [sys.executable, *program, "serve", *arguments]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        deadline = time.monotonic() + LIMIT_S
        while not (self._ready.exists() and self._ready.read_text().count("\n")):
            assert self._process.poll() is None, (self._directory / "out.log").read_text()
            assert time.monotonic() < deadline, "the broker is not ready"
            time.sleep(0.01)
        self.address = self._ready.read_text().splitlines()[0]

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(LIMIT_S)

    def connect(self) -> Wire:
        host, _, port = self.address.rpartition(":")
        return Wire((host, int(port)))

    def values(self, *, committed: bool) -> list[bytes | None]:
        return [
            message.value()
            for partition in range(PARTITIONS)
            for message in read(self.address, "orders", partition, committed=committed)
        ]


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    victim = Victim(tmp_path)
    yield victim
    victim.kill()


def initialise(wire: Wire, *, keep: bool = False, two_phase: bool = False) -> tuple[int, int, tuple[int, int]]:
    """Producer id and epoch, and those of the transaction that was kept. Its timeout is up at once."""
    assert wire.ask(FindCoordinatorRequest(key=ID, key_type=TRANSACTION), 3).error_code == 0
    timeout_ms = 1 if two_phase else 60_000
    request = InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=timeout_ms, enable2_pc=two_phase, keep_prepared_txn=keep
    )
    answer = wire.ask(request, 6)
    assert answer.error_code == 0
    kept = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
    return answer.producer_id, answer.producer_epoch, kept


def write(wire: Wire, producer_id: int, producer_epoch: int) -> list[bytes]:
    """A transaction over all partitions; its values."""
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(range(PARTITIONS)))],
    )
    joined = wire.ask(added, 3).results_by_topic_v3_and_below[0].results_by_partition
    assert [result.partition_error_code for result in joined] == [0] * PARTITIONS
    values = [b"%d" % partition for partition in range(PARTITIONS)]
    batches = [
        PartitionProduceData(
            index=partition,
            records=build_batch(
                [Record(0, int(time.time() * 1000), None, value)],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=0,
                transactional=True,
            ),
        )
        for partition, value in enumerate(values)
    ]
    topic = TopicProduceData(name="orders", partition_data=batches)
    answer = wire.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic], transactional_id=ID), 11)
    assert [result.error_code for result in answer.responses[0].partition_responses] == [0] * PARTITIONS
    return values


def end(wire: Wire, producer_id: int, producer_epoch: int, *, commit: bool, version: int) -> int:
    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer_id, producer_epoch=producer_epoch, committed=commit
    )
    return int(wire.ask(request, version).error_code)


def state(wire: Wire) -> str:
    (described,) = wire.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states
    assert described.error_code == 0
    return str(described.transaction_state)


def check_outcome(victim: Victim, values: list[bytes], *, commit: bool) -> None:
    """All of it under read_committed or none; the transactional id may be used again."""
    assert wait_until_closed(victim.address, ["orders"]) == {}
    assert victim.values(committed=True) == (values if commit else [])
    assert victim.values(committed=False) == values
    with victim.connect() as wire:
        deadline = time.monotonic() + LIMIT_S
        while state(wire) != ("CompleteCommit" if commit else "CompleteAbort"):
            assert time.monotonic() < deadline, state(wire)
        initialise(wire)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_completed_after_the_kill(victim: Victim, commit: bool, version: int) -> None:
    victim.start(markers=False)
    create_topic(victim.address, "orders", PARTITIONS)
    with victim.connect() as wire:
        producer_id, producer_epoch, _ = initialise(wire)
        values = write(wire, producer_id, producer_epoch)
        assert end(wire, producer_id, producer_epoch, commit=commit, version=version) == 0
        assert state(wire) == ("PrepareCommit" if commit else "PrepareAbort")
    victim.kill()
    victim.start()
    check_outcome(victim, values, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_waits_for_its_coordinator_outside(victim: Victim, commit: bool) -> None:
    """The client dies with the broker; its successor keeps the transaction and ends it as it was told to."""
    victim.start()
    create_topic(victim.address, "orders", PARTITIONS)
    with victim.connect() as wire:
        producer_id, producer_epoch, _ = initialise(wire, two_phase=True)
        values = write(wire, producer_id, producer_epoch)
    victim.kill()
    victim.start()
    with victim.connect() as wire:
        assert state(wire) == "Ongoing", "no timeout may abort it"
        next_id, next_epoch, kept = initialise(wire, keep=True, two_phase=True)
        assert kept == (producer_id, producer_epoch)
    victim.kill()
    victim.start()
    with victim.connect() as wire:
        assert state(wire) == "Ongoing"
        assert end(wire, next_id, next_epoch, commit=commit, version=5) == 0
    check_outcome(victim, values, commit=commit)
