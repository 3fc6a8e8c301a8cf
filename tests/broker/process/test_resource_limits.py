"""A broker with few file descriptors: nothing is lost, clients see only errors that they retry, and it says why.

From outside: `barnabas serve` under RLIMIT_NOFILE, and librdkafka's idempotent producer.
"""

import contextlib
import errno
import os
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.errors import KafkaStorageError
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.replication.partition import Partition
from barnabas.testing import Broker
from broker.sent_requests import batch, fetch, produce
from broker.served import Served
from broker.wire import Wire


class Outcome:
    """The outcome of an idempotent producer's records."""

    def __init__(self, address: tuple[str, int], partitions: int) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        self.partitions = partitions
        self.acknowledged: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"{address[0]}:{address[1]}",
                "enable.idempotence": True,
                "batch.size": 8000,
                "linger.ms": 5,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )

    def _on_error(self, error: object) -> None:
        if error.fatal():  # type: ignore[attr-defined]
            self.errors["fatal"] += 1

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self.errors[error.name()] += 1  # type: ignore[attr-defined]
        else:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]

    def send(self, count: int) -> None:
        for number in range(count):
            self._producer.produce("t", bytes(200), partition=number % self.partitions, on_delivery=self._on_delivery)
            if number % 1000 == 0:
                self._producer.poll(0)
        assert self._producer.flush(60) == 0


@contextlib.contextmanager
def few_descriptors(tmp_path: Path, partitions: int) -> Iterator[tuple[Served, Outcome]]:
    settings = (f"num.partitions={partitions}", "log.segment.bytes=16384", "log.flush.scheduler.interval.ms=50")
    served = Served(tmp_path, tmp_path / "data", *settings, open_files_max=128)
    try:
        outcome = Outcome(served.address, partitions)
        outcome.send(partitions)
        yield served, outcome
    finally:
        assert served.stop() == 0


def end_offsets(tmp_path: Path, partitions: int) -> dict[int, int]:
    with Broker(data_dir=tmp_path / "data") as broker:
        return dict(enumerate(broker.end_offsets("t")[:partitions]))


def test_more_connections_than_descriptors_cost_no_record(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, 20) as (served, outcome), contextlib.ExitStack() as open_sockets:
        for _ in range(300):
            sock = open_sockets.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(served.address)
        outcome.send(20_000)
        open_files = len(os.listdir(f"/proc/{served.process.pid}/fd"))
        assert open_files < 120, "a reserve is left for files"
        open_sockets.close()
        with Wire(served.address) as newcomer:
            assert newcomer.ask(fetch(None, {0: 0}), 12).error_code == 0  # type: ignore[arg-type]
        told = served.errors.read_text()
    assert outcome.errors == {}
    assert end_offsets(tmp_path, 20) == outcome.acknowledged
    lines = [line for line in told.splitlines() if "the limit on open files is exhausted" in line]
    assert len(lines) == 1
    assert "ulimit -n" in lines[0]
    assert "Traceback" not in told


def test_more_rolling_logs_than_descriptors_cost_no_record(tmp_path: Path) -> None:
    with few_descriptors(tmp_path, 100) as (served, outcome):
        outcome.send(40_000)
        told = served.errors.read_text()
    assert outcome.errors == {}
    assert end_offsets(tmp_path, 100) == outcome.acknowledged
    assert "Traceback" not in told


def test_transactions_go_on_where_logs_alone_would_need_all_descriptors(tmp_path: Path) -> None:
    served = Served(tmp_path, tmp_path / "data", "num.partitions=40", open_files_max=64)
    try:
        address = ":".join(map(str, served.address))
        for number in range(40):
            producer = Producer(bootstrap_servers=address, transactional_id=f"producer {number}")
            with producer:
                producer.init_transactions()
                with producer.transaction():
                    producer.send("t", b"record", partition=number)
    finally:
        assert served.stop() == 0
    assert set(end_offsets(tmp_path, 40).values()) == {2}


def test_requests_of_a_new_kind_are_answered_without_a_descriptor(tmp_path: Path) -> None:
    """Their modules are imported at the first one."""
    served = Served(tmp_path, tmp_path / "data")
    try:
        with Wire(served.address) as wire:
            assert wire.ask(MetadataRequest(), 12).brokers
            used = len(os.listdir(f"/proc/{served.process.pid}/fd"))
            resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (used, used))
            assert wire.ask(ListGroupsRequest(), 4).error_code == 0
            assert wire.ask(ListTransactionsRequest(), 0).error_code == 0
    finally:
        assert served.stop() == 0
    assert "Traceback" not in served.errors.read_text()


def test_a_request_that_memory_is_too_short_for_costs_its_connection_alone(tmp_path: Path) -> None:
    served = Served(tmp_path, tmp_path / "data")
    try:
        with Wire(served.address) as wire, socket.create_connection(served.address, timeout=60) as large:
            assert wire.ask(MetadataRequest(), 12).brokers
            has = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(served.process.pid, resource.RLIMIT_AS, (has + (8 << 20), resource.RLIM_INFINITY))
            with contextlib.suppress(ConnectionError):
                large.sendall((64 << 20).to_bytes(4, "big") + bytes(64 << 20))
            with contextlib.suppress(ConnectionError):
                assert large.recv(1) == b""
            assert wire.ask(MetadataRequest(), 12).brokers
    finally:
        assert served.stop() == 0
    assert "Traceback" not in served.errors.read_text()


@pytest.mark.source
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO])
def test_what_the_system_refuses_a_producer_may_try_again(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with Broker() as broker, Wire(broker) as wire:
        broker.create_topic("t")
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_as_leader", refuse)
            for _ in range(20):
                answer = wire.ask(produce(broker, {0: batch(b"x")}), 12)
                assert answer.responses[0].partition_responses[0].error_code == KafkaStorageError.code
        answer = wire.ask(produce(broker, {0: batch(b"x")}), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
    (line,) = [record for record in caplog.records if "produce to t-0 failed" in record.getMessage()]
    assert line.exc_info is None
