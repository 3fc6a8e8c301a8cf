"""The periodic tasks of a running broker."""

import os

import pytest

from barnabas.log.directories.disk import Disk
from barnabas.testing import Broker
from broker.sent_requests import batch, produce
from broker.wire import Wire, server_of


def test_logs_are_flushed_when_flush_ms_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(Disk, "fdatasync", staticmethod(synced.append))
    monkeypatch.setattr(os, "fsync", lambda _: None)  # seconds, on a disk that others keep busy
    settings = {"log.flush.scheduler.interval.ms": 20, "log.flush.interval.ms": 1, "log.initial.task.delay.ms": 0}
    with Broker(settings=settings) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        wire.ask(produce(broker, {0: batch(b"x")}), 12)
        log = server_of(broker).replica_manager.leader_of("t", 0).log
        broker.wait_for(lambda: synced and log.recovery_point == 1, timeout=60, what="the flush")


def test_the_first_retention_run_comes_after_the_initial_delay() -> None:
    settings = {"log.initial.task.delay.ms": 100, "log.segment.bytes": 1000, "log.retention.bytes": 1000}
    with Broker(settings=settings) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        for _ in range(20):
            wire.ask(produce(broker, {0: batch(b"x" * 400)}), 12)
        log = server_of(broker).replica_manager.leader_of("t", 0).log
        broker.wait_for(lambda: log.log_start_offset > 0, what="retention")  # the next run is five minutes away
