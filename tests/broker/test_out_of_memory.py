"""A broker whose memory runs out: in the middle of something it ends, where nothing has changed yet it goes on."""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas import out_of_memory
from barnabas.broker.handlers.records import produce as produce_handler
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.produce import batch_validator
from barnabas.broker.purgatory import DelayedOperationPurgatory
from barnabas.broker.requests import dispatch, sliced_responses
from barnabas.broker.requests.late_responses import run_handler
from barnabas.clock import SYSTEM_CLOCK
from barnabas.connection.drivers.aio import AioDriver
from barnabas.controller.controller import Controller
from barnabas.coordinator.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.errors import KafkaStorageError, NotEnoughReplicas
from barnabas.log import unified_log
from barnabas.log.cleaner.log_cleaner_manager import LogCleanerManager
from barnabas.network import page_cache
from barnabas.out_of_memory import WAY_OUT
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.records import compression
from barnabas.testing import Broker
from broker.sent_requests import batch, produce
from broker.wire import Wire, on_loop, server_of

pytestmark = pytest.mark.source

LARGE = bytes(3_000_000)


class Ended:
    """The ends of the process, of which none happens here."""

    def __init__(self) -> None:
        self.once = threading.Event()
        self.errors: list[MemoryError] = []

    def __call__(self, error: MemoryError) -> None:
        self.errors.append(error)
        self.once.set()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Ended:
    ended = Ended()
    monkeypatch.setattr(out_of_memory, "_end", ended)
    return ended


def no_memory(*_: object, **__: object) -> Any:
    raise MemoryError


# --- in the middle of something ---------------------------------------------------------------------------------------


def commit_offset(broker: Broker, wire: Wire) -> None:
    wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)])]
    wire.send(OffsetCommitRequest(group_id="g", topics=topics), 8)


def append(broker: Broker, wire: Wire) -> None:
    wire.send(produce(broker, {0: batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)}), 12)


def append_late(broker: Broker, wire: Wire) -> None:
    wire.send(produce(broker, {0: batch(LARGE, compression="zstd")}), 12)


def create_topic(broker: Broker, wire: Wire) -> None:
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)


def look_for_dirty_logs(broker: Broker, wire: Wire) -> None:
    on_loop(broker, server_of(broker).log_cleaner.run)


def clean(broker: Broker, wire: Wire) -> None:
    manager = server_of(broker).log_cleaner.manager
    on_loop(broker, lambda: setattr(manager, "_running", SimpleNamespace(log=SimpleNamespace(topic_partition="t-0"))))
    try:
        on_loop(broker, lambda: manager.event({"event": "cleaned"}))
    finally:
        on_loop(broker, lambda: setattr(manager, "_running", None))


@pytest.mark.parametrize(
    ("place", "name", "act"),
    [
        (unified_log, "note_batch", append),
        (batch_validator._Request, "run_slice", append_late),
        (Controller, "create_topics", create_topic),
        (CoordinatorRuntime, "_write", commit_offset),
        (LogCleanerManager, "run", look_for_dirty_logs),
        (LogCleanerManager, "_take", clean),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_broker_ends(
    broker: Broker,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    name: str,
    act: Callable[[Broker, Wire], None],
) -> None:
    broker.create_topic("t")
    with Wire(broker) as wire, monkeypatch.context() as patch:
        patch.setattr(place, name, no_memory)
        act(broker, wire)
        assert ended.once.wait(60)


def test_a_failure_that_is_told_ends_it_first(ended: Ended, caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("test"), SYSTEM_CLOCK)
    failures.report("the end marker for t-0", OSError("not this"))
    assert ended.errors == []
    failures.report("the end marker for t-0", error := MemoryError())
    assert ended.errors == [error]
    assert f"the end marker for t-0 failed: memory has run out; {WAY_OUT}" in caplog.messages, "not its own process"


async def delayed() -> None:
    class Completion:
        def try_complete(self, changed: object) -> bool:
            raise MemoryError

        def expire(self) -> None:
            raise MemoryError

    watched: Any = SimpleNamespace(watchers={})
    purgatory = DelayedOperationPurgatory(asyncio.get_running_loop())
    purgatory.delay(Completion(), None, [watched], 60).try_complete()
    purgatory.delay(Completion(), None, [watched], 60).expire()


async def coroutines_of_handlers() -> None:
    async def handler() -> None:
        raise MemoryError

    for _ in range(2):
        with pytest.raises(MemoryError):
            run_handler(asyncio.get_running_loop(), handler())


async def requests_for_producer_ids() -> None:
    async def allocate() -> range:
        raise MemoryError

    ids = ProducerIdManager(asyncio.get_running_loop(), allocate, lambda work: work.close())
    for _ in range(2):
        with pytest.raises(MemoryError):
            await ids.wait()


async def connections_to_other_brokers() -> None:
    for _ in range(2):
        client: Any = SimpleNamespace(now=0.0, advance=no_memory, close=no_memory, completions=[])
        with pytest.raises(MemoryError):
            AioDriver(client).run(lambda: None)


@pytest.mark.parametrize(
    "scenario", [delayed, coroutines_of_handlers, requests_for_producer_ids, connections_to_other_brokers]
)
def test_parts_that_go_on_after_bugs_end_it(scenario: Callable[[], Any], ended: Ended) -> None:
    asyncio.run(scenario())
    assert len(ended.errors) == 2


# --- where nothing has changed yet ------------------------------------------------------------------------------------


@pytest.fixture
def goes_on(broker: Broker, ended: Ended, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The broker serves other connections afterwards, and tells nothing of a bug."""
    broker.create_topic("t")
    yield
    with Wire(broker) as other:
        assert other.ask(MetadataRequest(topics=[]), 12).brokers
    assert ended.errors == []
    assert not [record for record in caplog.get_records("call") if record.exc_info]


@pytest.mark.usefixtures("goes_on")
def test_a_request_that_cannot_be_read_costs_its_connection(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "decode", no_memory)
        wire.send(DescribeClusterRequest(), 1)
        assert wire.is_closed()


@pytest.mark.usefixtures("goes_on")
@pytest.mark.parametrize("steps", [0, 1])
def test_a_response_that_cannot_be_written_costs_its_connection(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    def encode(*_: object) -> Iterator[None]:
        for _step in range(steps):
            yield
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.network.time_slicing.SLICE_S", 0.0)
        patch.setattr(sliced_responses, "encode_slices", encode)
        wire.send(DescribeClusterRequest(), 1)
        assert wire.is_closed()


@pytest.mark.usefixtures("goes_on")
@pytest.mark.parametrize(
    ("place", "records", "what"),
    [
        (produce_handler, {0: (b"x", "none")}, "produce to t-0"),
        (produce_handler, {0: (b"x", "none"), 9: (b"x", "none")}, "produce to t-0"),
        (batch_validator, {0: (LARGE, "zstd")}, "validating a batch"),
    ],
    ids=["one", "several", "in a thread"],
)
def test_a_batch_that_cannot_be_checked_is_refused_until_there_is_memory(
    broker: Broker,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: object,
    records: dict[int, tuple[bytes, str]],
    what: str,
) -> None:
    """What is behind it waits until it is there: told of a gap, librdkafka would send again as new what is written."""

    def code(sequence: int) -> int:
        batches = {
            index: batch(value, compression=kind, producer_id=7, producer_epoch=0, base_sequence=sequence)
            for index, (value, kind) in records.items()
        }
        return int(wire.ask(produce(broker, batches), 12).responses[0].partition_responses[0].error_code)

    assert code(0) == 0
    with monkeypatch.context() as patch:
        patch.setattr("barnabas.broker.process.failure_log._INTERVAL_S", -1.0)  # another test has told of it before
        patch.setattr(place, "validate_produce", no_memory)
        assert code(1) == KafkaStorageError.code
    assert code(2) == NotEnoughReplicas.code
    assert [code(1), code(2)] == [0, 0]
    assert len(broker.records("t")) == 3
    assert [each for each in caplog.messages if each.startswith(f"{what} failed: memory has run out; {WAY_OUT}")]


def test_a_read_ahead_that_finds_no_buffer_leaves_it_to_the_send(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_buffer", no_memory)
    part: Any = SimpleNamespace(position=0, fd=-1)
    page_cache.bring_in(part, 0, 10)


def test_a_batch_whose_codec_cannot_be_loaded_now_is_to_be_sent_again(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t")
    request = produce(broker, {0: batch(b"x", compression="lz4")})

    def refuse() -> None:
        raise OSError(errno.ENOMEM, "failed to map segment from shared object", "lz4.block.so")

    with monkeypatch.context() as patch:
        patch.setattr(compression, "_lz4_block", refuse)
        assert wire.ask(request, 12).responses[0].partition_responses[0].error_code == KafkaStorageError.code
    assert wire.ask(request, 12).responses[0].partition_responses[0].error_code == 0
    told = f"produce to t-0 failed: failed to map segment from shared object (lz4.block.so); {WAY_OUT}"
    assert told in [each.removesuffix(" (1 more like this since the last line)") for each in caplog.messages]
