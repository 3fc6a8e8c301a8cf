"""Start, stop and metadata changes when something fails on the way."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import server
from barnabas.config.broker import BrokerConfig
from barnabas.controller.controller import Controller
from barnabas.errors import KafkaStorageError
from barnabas.log import log_manager
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import UnifiedLog
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.registry.registry import BrokerRegistration, RegistryUnreachable
from barnabas.testing import Broker
from barnabas.thread_pool import ThreadPool
from broker.sent_requests import append
from broker.wire import Wire, on_loop, server_of

# --- the disk refuses ------------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_made_is_made_later(broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    create = LogManager.create

    def full(self, topic_partition, topic_id, config, **more):  # type: ignore[no-untyped-def]
        if topic_partition.partition == 1:
            raise KafkaStorageError("no space left on device")
        return create(self, topic_partition, topic_id, config, **more)

    monkeypatch.setattr(LogManager, "create", full)
    broker.create_topic("t", 3)
    broker.create_topic("u", 1)
    assert [append(wire, "t", index) for index in range(3)] == [0, KafkaStorageError.code, 0]
    assert append(wire, "u") == 0
    monkeypatch.undo()
    on_loop(broker, server_of(broker).replica_manager.open_refused)
    assert append(wire, "t", 1) == 0


def test_a_log_that_cannot_be_removed_is_not_the_next_topics(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t", 2)
    assert append(wire, "t") == 0

    def refuse(self, topic_partition):  # type: ignore[no-untyped-def]
        raise KafkaStorageError("read-only file system")

    monkeypatch.setattr(LogManager, "delete", refuse)
    broker.delete_topic("t")
    monkeypatch.undo()
    assert append(wire, "t") == 3
    broker.create_topic("t", 2)
    assert broker.end_offsets("t") == [0, 0]
    assert append(wire, "t") == 0


def test_the_log_of_a_topic_that_was_deleted_in_a_crash_is_kept_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        broker.create_topic("kept")
        assert (append(wire, "t"), append(wire, "kept")) == (0, 0)
        monkeypatch.setattr(LogManager, "delete", lambda self, topic_partition: None)  # the end came before
        broker.delete_topic("t")
    monkeypatch.undo()
    size = (tmp_path / "t-0" / f"{0:020}.log").stat().st_size
    with Broker(data_dir=tmp_path) as broker:
        (stray,) = tmp_path.glob("t-0.*-stray")
        assert (stray / f"{0:020}.log").stat().st_size == size > 0
        assert (broker.topics(), broker.end_offsets("kept")) == (["kept"], [1])
        broker.create_topic("t")
        assert broker.end_offsets("t") == [0]


def test_a_log_that_lost_its_topic_id_gets_it_back(tmp_path: Path) -> None:
    """partition.metadata is not synced: a power loss may leave it out."""
    with Broker(data_dir=tmp_path) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        assert append(wire, "t") == 0
    told = (tmp_path / "t-0" / "partition.metadata").read_text()
    (tmp_path / "t-0" / "partition.metadata").unlink()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.end_offsets("t") == [1]
        assert (tmp_path / "t-0" / "partition.metadata").read_text() == told


# --- leadership and metadata -----------------------------------------------------------------------------------------


def test_what_metadata_keeps_goes_with_the_topic(broker: Broker, wire: Wire) -> None:
    for index in range(20):
        broker.create_topic(f"gone-{index}")
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=f"gone-{index}")]), 8)
        broker.delete_topic(f"gone-{index}")
    assert not [name for kept in server_of(broker).metadata_cache.values() for name in kept if name.startswith("gone")]


# --- stop ------------------------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_closed_keeps_nothing_else_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(data_dir=tmp_path).start()
    broker.create_topic("bad")
    broker.create_topic("good")
    with Wire(broker) as wire:
        assert (append(wire, "bad"), append(wire, "good")) == (0, 0)
    close = UnifiedLog.close

    def broken(self, *, flush=True):  # type: ignore[no-untyped-def]
        if self.topic_partition.topic == "bad":
            raise RuntimeError("bug")
        close(self, flush=flush)

    monkeypatch.setattr(UnifiedLog, "close", broken)
    broker.stop()
    assert "not all logs could be closed" in caplog.text
    monkeypatch.undo()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    broker.start()  # neither the directory's lock nor the registry is held
    assert (broker.end_offsets("bad"), broker.end_offsets("good")) == ([1], [1])
    broker.close()


def test_a_start_ends_where_it_is_told_to_stop(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 3)
    loop = asyncio.new_event_loop()
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    interrupted = server.Broker(BrokerConfig.of(settings), loop)
    interrupted.interrupted = True
    with pytest.raises(server.StartInterrupted):
        interrupted.start()
    loop.close()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.end_offsets("t") == [0, 0, 0]


def test_what_a_power_loss_took_is_told_by_the_first_start_that_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that loses its registry has recovered the logs, and nobody knows what they lack."""
    loop = asyncio.new_event_loop()
    config = BrokerConfig.of({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    first = server.Broker(config, loop, boot="before")
    first.start()
    first.abandon()
    said: list[bool] = []
    begin = Controller.start

    def lost_at_first(self: Controller, registration: BrokerRegistration, *further: Any) -> None:
        said.append(registration.unclean)
        if len(said) < 3:
            raise RegistryUnreachable("the connection is lost")
        begin(self, registration, *further)

    monkeypatch.setattr(Controller, "start", lost_at_first)
    for _ in range(2):
        with pytest.raises(RegistryUnreachable):
            server.Broker(config, loop, boot="after").start()
    for _ in range(2):
        broker = server.Broker(config, loop, boot="after")
        broker.start()
        broker.abandon()
    assert said == [True, True, True, False]
    loop.close()


def test_as_many_threads_as_are_set_recover_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    config = BrokerConfig.of({**settings, "num.recovery.threads.per.data.dir": "3"})
    first = server.Broker(config, loop, boot="before")
    first.start()
    first.abandon()
    pools: list[tuple[int, str]] = []

    class Pool(ThreadPool):
        def __init__(self, size: int, name: str) -> None:
            pools.append((size, name))
            super().__init__(size, name)

    monkeypatch.setattr(log_manager, "ThreadPool", Pool)
    second = server.Broker(config, loop, boot="after")
    second.start()
    second.abandon()
    loop.close()
    assert pools == [(3, "barnabas-recovery")]


def test_after_a_clean_stop_logs_are_loaded_and_not_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", partitions=2)
    monkeypatch.setattr(server, "_REPORT_INTERVAL_S", -1)
    caplog.clear()
    with Broker(data_dir=tmp_path):
        told = [message for message in caplog.messages if " logs" in message]
    assert [message.rpartition(",")[0] for message in told] == ["loading logs: 1 of 2", "loading logs: 2 of 2"]
