"""The periodic tasks of a running broker."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.periodic_tasks import schedule_tasks
from barnabas.broker.process.failure_log import FailureLog
from barnabas.broker.scheduler import Scheduler
from barnabas.config.broker import BrokerConfig
from barnabas.log.directories.disk import Disk
from barnabas.testing import Broker
from broker.admin_rig import running_broker
from broker.sent_requests import batch, produce
from broker.virtual_loop import run
from broker.wire import Wire, server_of
from hand_clock import HandClock


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


class Inline(Executor):
    """Runs at once what would run in a thread."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **options))
        return future


class Calls:
    """Stands for a part of a broker, and notes at which second each of its methods was called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.at: defaultdict[str, list[float]] = defaultdict(list)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.at[name].append(self._loop.time())


def test_each_task_runs_at_the_interval_of_its_setting() -> None:
    settings = {
        "log.initial.task.delay.ms": 2000,
        "offsets.retention.check.interval.ms": 7000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 11_000,
        "producer.id.expiration.check.interval.ms": 13_000,
        "replica.high.watermark.checkpoint.interval.ms": 16_000,
        "log.retention.check.interval.ms": 19_000,
        "log.flush.offset.checkpoint.interval.ms": 23_000,
        "log.flush.start.offset.checkpoint.interval.ms": 29_000,
    }

    async def main() -> None:
        loop = asyncio.get_running_loop()
        part = Calls(loop)
        broker: Any = SimpleNamespace(
            config=BrokerConfig.of(settings),
            loop=loop,
            clock=HandClock(),
            log=logging.getLogger("test"),
            log_manager=part,
            log_cleaner=SimpleNamespace(manager=SimpleNamespace(busy=())),
            replica_manager=part,
            groups=part,
            transactions=part,
            check_registry=part.check_registry,
        )
        scheduler = Scheduler(loop, Inline(), FailureLog(broker.log, broker.clock))
        schedule_tasks(broker, scheduler, Inline(), part.refill_reserves)
        await asyncio.sleep(32.5)
        scheduler.stop()
        assert {name: times[:2] for name, times in part.at.items() if times[0] in (2, 7, 11, 13, 16)} == {
            "expire_offsets": [7, 14],
            "expire_transactional_ids": [11, 22],
            "expire_producers": [13, 26],
            "checkpoint_high_watermarks": [16, 32],
            "cleanup_logs": [2, 21],
            "collect_flushes": [2, 12],
            "checkpoint_recovery_points": [2, 25],
            "checkpoint_log_start_offsets": [2, 31],
            "check_registry": [2, 4],
        }

    run(main())


def test_offsets_and_transactional_ids_expire_by_the_settings(tmp_path: Path) -> None:
    with running_broker(tmp_path, offsets_retention_minutes=3, transactional_id_expiration_ms=7000) as broker:
        assert broker.groups.config.offsets_retention_ms == 180_000
        assert broker.transactions.config.id_expiration_ms == 7000


def test_the_first_retention_run_comes_after_the_initial_delay() -> None:
    settings = {"log.initial.task.delay.ms": 100, "log.segment.bytes": 1000, "log.retention.bytes": 1000}
    with Broker(settings=settings) as broker, Wire(broker) as wire:
        broker.create_topic("t")
        for _ in range(20):
            wire.ask(produce(broker, {0: batch(b"x" * 400)}), 12)
        log = server_of(broker).replica_manager.leader_of("t", 0).log
        broker.wait_for(lambda: log.log_start_offset > 0, what="retention")  # the next run is five minutes away
